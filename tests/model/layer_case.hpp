#pragma once
/// Gradients of one layer against finite differences of its own forward pass.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "layers/pass.hpp"
#include "resident_params.hpp"
#include "tessera/core/random.hpp"

namespace tessera::model::detail::test {

struct LayerShape {
  std::int64_t batch, sequence, in, out;
  std::int64_t rows() const { return batch * sequence; }
};

/// A layer in a unit of its own, in fp32 on the host. The loss is sum(dout * out).
class LayerCase {
 public:
  using Forward = std::function<void(PassContext const&, WeightLease const&, TensorView out,
                                     ConstTensorView in)>;
  /// Runs the forward pass, then the backward pass; din is overwritten.
  using Backward = std::function<void(PassContext const&, BackwardLeases const&, TensorView din,
                                      ConstTensorView dout, ConstTensorView in)>;

  LayerCase(UnitSpec const& unit, LayerShape const& shape, Forward forward, Backward backward)
      : shape_(shape),
        forward_(std::move(forward)),
        backward_(std::move(backward)),
        params_({unit}, Dtype::fp32,
                [](memory::ParameterSpec const& spec, float* out) {
                  for (std::int64_t i = 0; i < spec.numel(); ++i)
                    out[i] = random(i, 17 + spec.name.size()) * 0.7f;
                }),
        in_(numbers(shape.rows() * shape.in, 2)),
        dout_(numbers(shape.rows() * shape.out, 3)) {}

  void set_dropout() { dropout_ = true; }
  std::vector<float> const& in() const { return in_; }
  tessera::test::ResidentParams& params() { return params_; }

  std::vector<float> output() {
    ArenaScope const scope(arena_);
    PassContext const pass = context();
    TensorView const out = pass.allocate(shape_.rows(), shape_.out);
    params_.begin_pass(memory::Pass::evaluation, {memory::first_unit});
    forward_(pass, params_.acquire(memory::first_unit, *queue_), out, input(in_, shape_.in));
    return {out.as<float>(), out.as<float>() + out.numel()};
  }

  /// Returns the gradient of a parameter after one more backward pass; passes add from the second
  /// one on.
  std::vector<float> gradient_of(std::size_t parameter) {
    run_backward();
    return params_.gradient_values(0, parameter);
  }
  /// Every element of din and of the gradients of parameters that train; then the gradients once
  /// more, added.
  void expect_gradients(double tolerance = 3e-3) {
    std::vector<float> const din = run_backward();
    expect_slopes(din, in_, "input", tolerance, [](std::vector<float> const&) {});
    for (std::size_t const p : trained()) {
      std::vector<float> values = params_.weight_values(0, p);
      expect_slopes(params_.gradient_values(0, p), values, params_.spec(0).parameters[p].name,
                    tolerance, [&](std::vector<float> const& v) { params_.set_weight(0, p, v); });
    }
    expect_second_run_adds();
  }

 private:
  static float random(std::int64_t i, std::uint64_t seed) {
    return 2.0f * Philox{seed, 1}.uniform(static_cast<std::uint64_t>(i)) - 1.0f;
  }
  static std::vector<float> numbers(std::int64_t n, std::uint64_t seed) {
    std::vector<float> out(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) out[static_cast<std::size_t>(i)] = random(i, seed);
    return out;
  }
  TensorView input(std::vector<float>& values, std::int64_t columns) const {
    return {values.data(), Dtype::fp32, {shape_.rows(), columns}};
  }
  std::vector<std::size_t> trained() const {
    std::vector<std::size_t> out;
    auto const& parameters = params_.spec(0).parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (parameters[p].trains) out.push_back(p);
    return out;
  }
  PassContext context() {
    return {.compute = *queue_,
            .arena = arena_,
            .dtype = Dtype::fp32,
            .batch = shape_.batch,
            .sequence = shape_.sequence,
            .dropout_on = dropout_,
            .dropout_seed = 5};
  }
  double loss() {
    std::vector<float> const out = output();
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += static_cast<double>(out[i]) * dout_[i];
    return sum;
  }
  std::vector<float> run_backward() {
    ArenaScope const scope(arena_);
    PassContext const pass = context();
    TensorView const din = pass.allocate(shape_.rows(), shape_.in);
    params_.begin_pass(memory::Pass::training, {memory::first_unit});
    auto const weights = params_.acquire(memory::first_unit, *queue_);
    auto const gradients = params_.gradient(memory::first_unit, *queue_);
    backward_(pass, {weights, gradients}, din, input(dout_, shape_.out), input(in_, shape_.in));
    return {din.as<float>(), din.as<float>() + din.numel()};
  }
  template <class Set>
  void expect_slopes(std::vector<float> const& gradient, std::vector<float>& values,
                     std::string const& name, double tolerance, Set const& set) {
    ASSERT_EQ(gradient.size(), values.size());
    double largest = 1e-3;
    for (float const g : gradient) largest = std::max(largest, static_cast<double>(std::abs(g)));
    float const h = 1e-2f;
    for (std::size_t i = 0; i < values.size(); ++i) {
      float const old = values[i];
      values[i] = old + h;
      set(values);
      double const up = loss(), width = static_cast<double>(values[i]) - (old - h);
      values[i] = old - h;
      set(values);
      double const slope = (up - loss()) / width;
      values[i] = old;
      set(values);
      ASSERT_NEAR(gradient[i], slope, tolerance * largest) << name << ", element " << i;
    }
  }
  void expect_second_run_adds() {
    std::map<std::size_t, std::vector<float>> once;
    for (std::size_t const p : trained()) once[p] = params_.gradient_values(0, p);
    run_backward();
    for (auto const& [p, values] : once) {
      std::vector<float> const twice = params_.gradient_values(0, p);
      for (std::size_t i = 0; i < twice.size(); ++i)
        ASSERT_NEAR(twice[i], 2.0f * values[i], 1e-4f * (1.0f + std::abs(values[i])))
            << params_.spec(0).parameters[p].name << ", element " << i;
    }
  }

  LayerShape shape_;
  Forward forward_;
  Backward backward_;
  tessera::test::ResidentParams params_;
  std::unique_ptr<Queue> queue_ = memory::make_inline_queue("compute");
  Arena arena_{"activations", memory::Purpose::activations};
  std::vector<float> in_, dout_;
  bool dropout_ = false;
};

}  // namespace tessera::model::detail::test
