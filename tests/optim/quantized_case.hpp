#pragma once
/// The inputs of tests/oracles/optimizers_8bit.py, and comparisons with its results.

#include "tessera/kernels/optimizer/quantized_values.hpp"
#include "trajectory.hpp"

namespace tessera::optim::test {

inline float quantized_start(std::int64_t i) {
  return static_cast<float>(i * 7919 % 4093 - 2046) / 2048.0f;
}
/// Returns element @p i of the gradient of step @p t, which counts from 1.
inline float quantized_gradient(std::int64_t i, std::int64_t t) {
  auto const numerator = static_cast<float>((i * 104729 + t * 15485863) % 2003 - 1001);
  return std::ldexp(numerator, static_cast<int>(-10 - i % 6));
}

inline ConfigTree quantized_oracle() {
  return ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/optimizers_8bit.json");
}

/// Nearly all elements agree to single roundings. A rounding may lead to the neighboring code,
/// which moves later weights by a fraction of a step: @p most_codes of the others.
inline void expect_close(Floats const& got, Floats const& want, double most,
                         std::string const& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  std::size_t others = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double const difference = std::abs(got[i] - want[i]);
    others += difference > 2e-6 * std::abs(want[i]) + 4e-7;
    EXPECT_LE(difference, most) << what << " of sample " << i;
  }
  EXPECT_LE(others, got.size() / 50) << what;
}

/// A parameter in codes and its states, updated by one process.
struct QuantizedParameter {
  explicit QuantizedParameter(OptimizerSpec const& spec, std::int64_t numel)
      : optimizer(make_optimizer(spec)), queue(memory::make_inline_queue("compute")) {
    for (std::int64_t i = 0; i < numel; ++i) weights.push_back(quantized_start(i));
    codes.assign(spec.states.size() / 2, std::vector<std::uint8_t>(weights.size()));
    absmax.assign(codes.size(), Floats((weights.size() + 255) / 256));
  }

  /// Updates two segments that meet between two chunks.
  void step(std::int64_t t, double rate, Floats const& gradients) {
    kernels::GradientControl const control{0.5, 0};
    Floats doubled = gradients;
    for (float& g : doubled) g *= 2.0f;  // the factor undoes it
    std::size_t const border = weights.size() / 3 / 256 * 256;
    for (auto const& [begin, end] : {std::pair(std::size_t{0}, border), {border, weights.size()}}) {
      if (begin == end) continue;
      Segment s;
      s.master = weights.data() + begin;
      s.gradient = doubled.data() + begin;
      s.numel = static_cast<std::int64_t>(end - begin);
      std::vector<void*> of_run(2 * codes.size());
      for (std::size_t k = 0; k < codes.size(); ++k) {
        s.states.push_back(codes[k].data() + begin);
        of_run[codes.size() + k] = absmax[k].data() + begin / 256;
      }
      s.states.resize(2 * codes.size());
      auto const numel = static_cast<std::int64_t>(weights.size());
      s.parameters = {{{numel}, numel, static_cast<std::int64_t>(begin), 0, s.numel}};
      s.parameter_states = {of_run};
      optimizer->update(*queue, {{s}, Dtype::fp32, Dtype::fp32}, {t, rate, &control});
    }
  }

  /// A state as fp32.
  Floats values(std::size_t k) {
    bool const is_signed = optimizer->spec().states[k].encoding == Encoding::signed_codes;
    Floats out(weights.size());
    kernels::dequantize(
        {codes[k].data(), absmax[k].data()},
        is_signed ? kernels::DynamicMap::signed_values : kernels::DynamicMap::unsigned_values, out);
    return out;
  }

  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<memory::Queue> queue;
  Floats weights;
  std::vector<std::vector<std::uint8_t>> codes;
  std::vector<Floats> absmax;
};

}  // namespace tessera::optim::test
