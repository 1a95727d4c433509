#pragma once
/// A model against its stored case.

#include <algorithm>
#include <cmath>

#include "stored_case.hpp"

namespace tessera::test {

inline double largest(std::vector<float> const& v) {
  double out = 0.0;
  for (float const x : v) out = std::max(out, std::abs(static_cast<double>(x)));
  return out;
}

/// Largest difference, relative to the largest entry of @p want.
inline double worst(std::vector<float> const& got, std::vector<float> const& want) {
  if (got.size() != want.size()) return INFINITY;
  double out = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double const d = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    out = std::isnan(d) ? INFINITY : std::max(out, d);
  }
  return out / largest(want);
}

/// The loss and the gradient of every parameter.
inline void expect_training_matches(StoredCase const& c, StoredModel& b) {
  auto const tokens = c.tokens();
  auto const n = static_cast<double>(c.predictions());
  double const sum =
      b.train({tokens.data(), c.rows, c.sequence}, {.gradient_scale = static_cast<float>(1.0 / n)});
  EXPECT_NEAR(sum / n, c.loss, 2e-6 * c.loss);
  std::size_t compared = 0;
  b.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
    if (!spec.trains) return;
    ASSERT_TRUE(c.gradients.contains(spec.name)) << spec.name;
    EXPECT_LE(worst(b.params.gradient_values(unit, p), c.gradients.at(spec.name)), 1e-5)
        << spec.name;
    ++compared;
  });
  EXPECT_EQ(compared, c.gradients.size());
}

/// The loss and the logits of the last positions, without gradients.
inline void expect_evaluation_matches(StoredCase const& c, StoredModel& b) {
  auto const tokens = c.tokens();
  model::Batch const batch{tokens.data(), c.rows, c.sequence};
  EXPECT_NEAR(b.evaluate(batch) / static_cast<double>(c.predictions()), c.loss, 2e-6 * c.loss);
  EXPECT_LE(worst(b.next_token_logits(batch), c.last_logits), 1e-5);
}

/// Relative L2 errors of 16-bit gradients against fp32 ones of the same rounded weights: their root
/// mean square over the tensors is no larger than torch's (a tenth for luck), and none is far above
/// the largest that torch shows (single tensors of a few elements round luckily or not).
inline void expect_no_worse_than_torch(StoredCase const& c, Dtype dtype,
                                       ResidentParams::Fill const& fill) {
  ConfigTree const& bound = c.entry.at(name_of(dtype));
  auto const tokens = c.tokens();
  model::Batch const batch{tokens.data(), c.rows, c.sequence};
  auto const n = static_cast<double>(c.predictions());
  double const scale = bound.get_double("scale", 1.0);
  StoredModel rounded(c.config, dtype, fill);
  auto const weights_of = [&, u = 0, p = std::size_t{0}](memory::ParameterSpec const&,
                                                         float* out) mutable {
    while (p == rounded.params.spec(u).parameters.size()) ++u, p = 0;
    auto const values = rounded.params.weight_values(u, p++);
    std::copy(values.begin(), values.end(), out);
  };
  StoredModel exact(c.config, Dtype::fp32, weights_of);
  double const want = exact.train(batch, {.gradient_scale = static_cast<float>(1.0 / n)});
  double const got = rounded.train(batch, {.gradient_scale = static_cast<float>(scale / n)});
  double const loss_bound =
      dtype == Dtype::bf16 ? 0x1.0p-8 : 0x1.0p-11;  // one rounding of each logit
  EXPECT_LE(std::abs(got - want) / want, loss_bound);

  double squares = 0.0, torch_squares = 0.0, torch_largest = 0.0;
  for (auto const& [name, error] : bound.at("gradient_errors").as_object()) {
    torch_squares += error.as_double() * error.as_double();
    torch_largest = std::max(torch_largest, error.as_double());
  }
  rounded.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
    auto const g = rounded.params.gradient_values(unit, p),
               g32 = exact.params.gradient_values(unit, p);
    double error = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < g.size(); ++i) {
      error += std::pow(static_cast<double>(g[i]) / scale - static_cast<double>(g32[i]), 2);
      norm += std::pow(static_cast<double>(g32[i]), 2);
    }
    // a sum in another order moves a single gradient: 1.28 with joined products, 1.22 without
    EXPECT_LE(std::sqrt(error / norm), 1.35 * torch_largest) << spec.name;
    squares += error / norm;
  });
  EXPECT_LE(std::sqrt(squares / torch_squares), 1.1);
}

}  // namespace tessera::test
