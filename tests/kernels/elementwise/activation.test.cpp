#include "tessera/kernels/elementwise/activation.hpp"

#include <functional>
#include <map>

#include "decoder_oracle.hpp"
#include "fake_device.hpp"

namespace tessera::kernels::test {
namespace {

using Function = std::function<double(double)>;
double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

std::map<Activation, Function> const functions = {
    {Activation::gelu_new,
     [](double x) {
       return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
     }},
    {Activation::gelu, [](double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }},
    {Activation::silu, [](double x) { return x * logistic(x); }},
    {Activation::relu, [](double x) { return std::max(x, 0.0); }},
    {Activation::quick_gelu, [](double x) { return x * logistic(1.702 * x); }},
    {Activation::relu_squared, [](double x) { return std::pow(std::max(x, 0.0), 2); }}};

double slope(Function const& f, double x) {
  double const h = 1e-5;
  return (f(x + h) - f(x - h)) / (2.0 * h);
}

void finish(Queue& q) { q.record().wait("activations", std::chrono::seconds(60)); }

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

/// gate and up in one buffer of rows, with `apart` unused elements between and after them.
struct Gates {
  std::int64_t rows, width, stride, up_at;
  Array both, out, dout, dboth;
  Gates(Dtype t, std::int64_t r, std::int64_t w, std::int64_t apart)
      : rows(r),
        width(w),
        stride(2 * (w + apart)),
        up_at(w + apart),
        both(t, {r, stride}),
        out(t, {r, w}),
        dout(t, {r, w}),
        dboth(t, {r, stride}) {
    both.randomize(1, 4.0);
    dout.randomize(2);
    dboth.randomize(3);
  }
  RowsView part(Array& x, std::int64_t at) const {
    return {static_cast<std::byte*>(x.data()) + static_cast<std::size_t>(at) * size_of(x.dtype()),
            stride};
  }
  ConstRowsView from(Array& x, std::int64_t at) const { return {part(x, at).base, stride}; }
  GatedInput in() { return {from(both, 0), from(both, up_at)}; }
  GatedShape shape() const { return {both.dtype(), rows, width}; }

  void run(Queue& q, Activation f) {
    gated_activate(q, f, shape(), {out.data(), width}, in());
    gated_activate_backward(q, f, shape(), {part(dboth, 0), part(dboth, up_at)},
                            {dout.data(), width}, in());
    finish(q);
  }
};

void check_gates(Queue& q, Dtype dtype, Activation which) {
  Function const& f = functions.at(which);
  for (std::int64_t rows : {2, 7})
    for (std::int64_t width : {3, 7, 64, 1000})
      for (std::int64_t apart : {0, 3, 8}) {
        SCOPED_TRACE(::testing::Message() << rows << " rows of " << width << " + " << apart);
        Gates g(dtype, rows, width, apart);
        Reals want = g.out.values(), slopes = g.dboth.values();
        for (std::int64_t i = 0; i < rows * width; ++i) {
          std::int64_t const at = i / width * g.stride + i % width;
          double const gate = g.both.get(at), up = g.both.get(at + g.up_at), d = g.dout.get(i);
          want[static_cast<std::size_t>(i)] = f(gate) * up;
          slopes[static_cast<std::size_t>(at)] = d * up * slope(f, gate);
          slopes[static_cast<std::size_t>(at + g.up_at)] = d * f(gate);
        }
        g.run(q, which);
        expect_close(g.out, want);
        expect_close(g.dboth, slopes, 2e-6);
      }
}

TEST_P(Activations, Gated) {
  for (auto const& entry : functions) check_gates(*queue, dtype, entry.first);
}

TEST_P(Activations, GatedOnAStream) {
  tessera::test::FakeDevice device;
  auto const stream = memory::make_stream_queue("compute");
  check_gates(*stream, dtype, Activation::silu);
  check_gates(*stream, dtype, Activation::gelu);
}

TEST_P(Activations, GatedGradientsInPlaceOfTheInputs) {
  Gates apart(dtype, 5, 77, 0), here = apart;
  apart.run(*queue, Activation::silu);
  gated_activate_backward(*queue, Activation::silu, here.shape(),
                          {here.part(here.both, 0), here.part(here.both, here.up_at)},
                          {here.dout.data(), here.width}, here.in());
  EXPECT_TRUE(here.both == apart.dboth);
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
