#include "tessera/kernels/elementwise/activation.hpp"

#include "decoder_oracle.hpp"
#include "elementwise/activation_functions.hpp"

namespace tessera::kernels::test {
namespace {

TESSERA_KERNEL_SUITE(Activations);

TEST_P(Activations, ValuesAndGradients) {
  for (auto const& [which, f] : functions)
    for (std::int64_t n : {1, 5, 63, 4097}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(which) << ", " << n << " elements");
      Array in(dtype, {n}), out(dtype, {n}), dout(dtype, {n}), din(dtype, {n});
      in.randomize(8, 6.0, 0.01);
      dout.randomize(9);
      Reals want(static_cast<std::size_t>(n)), slopes(want);
      for (std::int64_t i = 0; i < n; ++i) {
        want[static_cast<std::size_t>(i)] = f(in.get(i));
        slopes[static_cast<std::size_t>(i)] = dout.get(i) * slope(f, in.get(i));
      }
      activate(*queue, which, out.view(), in.view());
      expect_close(out, want);
      activate_backward(*queue, which, din.view(), dout.view(), in.view());
      expect_close(din, slopes, 2e-6);
      activate_backward(*queue, which, dout.view(), dout.view(), in.view());
      EXPECT_TRUE(dout == din) << "in place";
    }
}

TEST_P(Activations, FarOut) {
  double const x[] = {-1e6, -100.0, -15.0, 15.0, 100.0, 1e6};
  for (auto const& [which, f] : functions) {
    SCOPED_TRACE(static_cast<int>(which));
    Array in(Dtype::fp32, {6}), out = in, din = in, one = in;
    for (std::int64_t i = 0; i < 6; ++i) in.set(i, x[i]);
    fill(*queue, one.view(), 1.0f);
    activate(*queue, which, out.view(), in.view());
    activate_backward(*queue, which, din.view(), one.view(), in.view());
    for (std::int64_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(out.get(i), f(x[i]), 1e-6 * std::abs(f(x[i])) + 5e-6);
      double const far = which == Activation::relu_squared ? 2.0 * x[i] : 1.0;
      EXPECT_NEAR(din.get(i), x[i] > 0 ? far : 0.0, 1e-6 * std::abs(x[i]) + 5e-6);
    }
  }
}

TEST_P(Activations, NanIsNotHidden) {
  for (auto const& [which, f] : functions) {
    Array in(dtype, {3}), out(dtype, {3});
    in.set(1, std::nan(""));
    activate(*queue, which, out.view(), in.view());
    EXPECT_TRUE(std::isnan(out.get(1))) << static_cast<int>(which);
  }
}

TEST_P(Activations, CapLogits) {
  for (std::int64_t n : {1, 9, 5000}) {
    Array data(dtype, {n});
    data.randomize(4, 100.0);
    Reals want = data.values();
    for (double& x : want) x = 30.0 * std::tanh(x / 30.0);
    cap_logits(*queue, data.view(), 30.0f);
    expect_close(data, want);
  }
}

TEST(ActivationOracle, EqualsTransformers) {
  std::map<std::string, Activation> const names = {
      {"gelu_new", Activation::gelu_new}, {"gelu_pytorch_tanh", Activation::gelu_new},
      {"gelu", Activation::gelu},         {"silu", Activation::silu},
      {"relu", Activation::relu},         {"quick_gelu", Activation::quick_gelu},
      {"relu2", Activation::relu_squared}};
  auto const queue = memory::make_inline_queue("compute");
  auto const stored = decoder_oracle("activation");
  ASSERT_EQ(stored.size(), names.size());
  for (auto const& c : stored.as_array()) {
    SCOPED_TRACE(c.at("name").as_string());
    Array const gate = array_of(c.at("gate"), Dtype::fp32), up = array_of(c.at("up"), Dtype::fp32),
                dout = array_of(c.at("dout"), Dtype::fp32);
    Array out = gate, dgate = gate, dup = gate;
    std::int64_t const n = gate.numel();
    GatedShape const shape{Dtype::fp32, 1, n};
    GatedInput const in{{gate.data(), n}, {up.data(), n}};
    Activation const f = names.at(c.at("name").as_string());
    gated_activate(*queue, f, shape, {out.data(), n}, in);
    gated_activate_backward(*queue, f, shape, {{dgate.data(), n}, {dup.data(), n}},
                            {dout.data(), n}, in);
    expect_close(out, reals(c.at("out")), 3e-7);
    expect_close(dgate, reals(c.at("dgate")), 1e-6);
    expect_close(dup, reals(c.at("dup")), 3e-7);
  }
}

}  // namespace
}  // namespace tessera::kernels::test
