#include "tessera/kernels/elementwise/activation.hpp"

#include "elementwise/flat.hpp"
#include "launch/fast_math.hpp"
#include "launch/launch.hpp"
#include "launch/pack.hpp"

namespace tessera::kernels::detail {
namespace {

/// 0.5 x (1 + tanh(u)) = x s with s = logistic(2u); d/dx (x s) = s + x s (1 - s) 2u'.
struct GeluNew {
  static constexpr float slope_of_u = 2.0f * 0.7978845608f;  // 2 sqrt(2/pi)
  static constexpr float cubic = 0.044715f;
  TESSERA_FUNCTION static float value(float x) {
    return x * logistic(slope_of_u * (x + cubic * x * x * x));
  }
  TESSERA_FUNCTION static float slope(float x) {
    float const s = logistic(slope_of_u * (x + cubic * x * x * x));
    float const two_du = slope_of_u * (1.0f + 3.0f * cubic * x * x);
    return s + x * s * (1.0f - s) * two_du;
  }
};

/// x Phi(x); d/dx = Phi(x) + x phi(x).
struct Gelu {
  TESSERA_FUNCTION static float distribution(float x) {
    return 0.5f * (1.0f + fast_erf(x * 0.70710678f));
  }
  TESSERA_FUNCTION static float value(float x) { return x * distribution(x); }
  TESSERA_FUNCTION static float slope(float x) {
    return multiply_add(x, 0.39894228f * fast_exp(-0.5f * x * x), distribution(x));
  }
};

/// x s with s = logistic(k x); d/dx = s + k x s (1 - s).
template <int Thousandths>
struct Swish {
  static constexpr float k = static_cast<float>(Thousandths) / 1000.0f;
  TESSERA_FUNCTION static float value(float x) { return x * logistic(k * x); }
  TESSERA_FUNCTION static float slope(float x) {
    float const s = logistic(k * x);
    return s + k * x * (s * (1.0f - s));
  }
};
using Silu = Swish<1000>;
using QuickGelu = Swish<1702>;

/// NaN stays NaN.
struct Relu {
  TESSERA_FUNCTION static float value(float x) { return x < 0.0f ? 0.0f : x; }
  TESSERA_FUNCTION static float slope(float x) { return x > 0.0f ? 1.0f : 0.0f; }
};
struct ReluSquared {
  TESSERA_FUNCTION static float value(float x) { return Relu::value(x) * Relu::value(x); }
  TESSERA_FUNCTION static float slope(float x) { return 2.0f * Relu::value(x); }
};

/// Calls @p call with an object of the rule.
template <class Call>
void with_activation(Activation f, Call const& call) {
  switch (f) {
    case Activation::gelu_new:
      return call(GeluNew());
    case Activation::gelu:
      return call(Gelu());
    case Activation::silu:
      return call(Silu());
    case Activation::relu:
      return call(Relu());
    case Activation::quick_gelu:
      return call(QuickGelu());
    case Activation::relu_squared:
      return call(ReluSquared());
  }
}

/// Row r is at base + r * row_stride.
template <class T>
struct MatrixRows {
  T* base = nullptr;
  std::int64_t row_stride = 0;
  KOKKOS_FUNCTION T* row(std::int64_t r) const { return base + r * row_stride; }
};

/// out = f(gate) * up
template <class F, class T>
struct Gated {
  MatrixRows<T> out;
  MatrixRows<T const> gate, up;
  std::int64_t width;

  KOKKOS_FUNCTION void operator()(SingleThread, std::int64_t row) const {
    T* const y = out.row(row);
    T const *const g = gate.row(row), *const u = up.row(row);
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) store(y[c], F::value(load(g[c])) * load(u[c]));
  }
  template <int N>
  KOKKOS_FUNCTION void pack(std::int64_t row, std::int64_t column) const {
    RowPack<T, N> g, u, y;
    g.read(gate.row(row) + column);
    u.read(up.row(row) + column);
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) y.set(i, F::value(g.get(i)) * u.get(i));
    y.write(out.row(row) + column);
  }
};

/// dgate = dout * up * f'(gate);  dup = dout * f(gate)
template <class F, class T>
struct GatedBackward {
  MatrixRows<T> dgate, dup;
  MatrixRows<T const> dout, gate, up;
  std::int64_t width;

  KOKKOS_FUNCTION void operator()(SingleThread, std::int64_t row) const {
    T *const dg = dgate.row(row), *const du = dup.row(row);
    T const *const dy = dout.row(row), *const g = gate.row(row), *const u = up.row(row);
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      float const d = load(dy[c]), x = load(g[c]), y = load(u[c]);
      store(dg[c], d * y * F::slope(x));
      store(du[c], d * F::value(x));
    }
  }
  template <int N>
  KOKKOS_FUNCTION void pack(std::int64_t row, std::int64_t column) const {
    RowPack<T, N> d, g, u, to_gate, to_up;
    d.read(dout.row(row) + column);
    g.read(gate.row(row) + column);
    u.read(up.row(row) + column);
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) {
      to_gate.set(i, d.get(i) * u.get(i) * F::slope(g.get(i)));
      to_up.set(i, d.get(i) * F::value(g.get(i)));
    }
    to_gate.write(dgate.row(row) + column);
    to_up.write(dup.row(row) + column);
  }
};

/// A pack of N elements per index.
template <class Rule, int N>
struct CallWithPack {
  Rule rule;
  std::int64_t packs;  ///< per row
  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    rule.template pack<N>(index / packs, index % packs * N);
  }
};

}  // namespace
}  // namespace tessera::kernels::detail

namespace tessera::kernels {
namespace {

using detail::Flat;
using detail::parallel_flat;
using detail::with_activation;
using detail::with_type;

/// What the flat kernels compute of one element, see detail/flat.hpp.
template <class F>
struct Apply {
  static constexpr bool draws = false;
  KOKKOS_FUNCTION float operator()(float x) const { return F::value(x); }
};
template <class F>
struct ApplyBackward {
  static constexpr bool draws = false;
  KOKKOS_FUNCTION float operator()(float dout, float x) const { return dout * F::slope(x); }
};
struct Cap {
  static constexpr bool draws = false;
  detail::SoftCap cap;
  KOKKOS_FUNCTION float operator()(float x) const { return cap.value(x); }
};

template <class T>
detail::MatrixRows<T> rows_of(RowsView const& view) {
  return {static_cast<T*>(view.base), view.row_stride};
}
template <class T>
detail::MatrixRows<T const> rows_of(ConstRowsView const& view) {
  return {static_cast<T const*>(view.base), view.row_stride};
}

/// Rows on the host, packs of 16 bytes or single elements on a stream.
template <class T, class Rule, class... Rows>
void launch_gated(Queue& q, char const* name, GatedShape const& shape, Rule const& rule,
                  Rows const&... rows) {
  if (q.kind() != memory::QueueKind::stream)
    return detail::launch_on_host(q, name, shape.rows, detail::CallWithRow<Rule>{rule});
  constexpr int pack = detail::pack_of<T>;
  bool const in_packs =
      detail::in_packs<pack>(shape.width, rows.base...) && ((rows.row_stride % pack == 0) && ...);
  if (in_packs)
    detail::parallel_for(q, name, shape.rows * (shape.width / pack),
                         detail::CallWithPack<Rule, pack>{rule, shape.width / pack});
  else
    detail::parallel_for(q, name, shape.rows * shape.width,
                         detail::CallWithPack<Rule, 1>{rule, shape.width});
}

}  // namespace

void activate(Queue& q, Activation f, TensorView out, ConstTensorView in) {
  TESSERA_EXPECT(out.numel() == in.numel());
  with_type(out.dtype(), "activate", [&](auto tag) {
    with_activation(f, [&](auto rule) {
      using T = typename decltype(tag)::type;
      parallel_flat(q, "tessera::kernels::activate", in.numel(),
                    Flat<Apply<decltype(rule)>, T, T>{{}, out.as<T>(), in.as<T>()});
    });
  });
}

void activate_backward(Queue& q, Activation f, TensorView din, ConstTensorView dout,
                       ConstTensorView in) {
  TESSERA_EXPECT(din.numel() == in.numel() && dout.numel() == in.numel());
  with_type(din.dtype(), "activate_backward", [&](auto tag) {
    with_activation(f, [&](auto rule) {
      using T = typename decltype(tag)::type;
      parallel_flat(
          q, "tessera::kernels::activate_backward", in.numel(),
          Flat<ApplyBackward<decltype(rule)>, T, T, T>{{}, din.as<T>(), dout.as<T>(), in.as<T>()});
    });
  });
}

void gated_activate(Queue& q, Activation f, GatedShape const& shape, RowsView const& out,
                    GatedInput const& in) {
  with_type(shape.dtype, "gated_activate", [&](auto tag) {
    with_activation(f, [&](auto function) {
      using T = typename decltype(tag)::type;
      detail::Gated<decltype(function), T> const rule{rows_of<T>(out), rows_of<T>(in.gate),
                                                      rows_of<T>(in.up), shape.width};
      launch_gated<T>(q, "tessera::kernels::gated_activate", shape, rule, rule.out, rule.gate,
                      rule.up);
    });
  });
}

void gated_activate_backward(Queue& q, Activation f, GatedShape const& shape,
                             GatedGradients const& to, ConstRowsView const& dout,
                             GatedInput const& in) {
  with_type(shape.dtype, "gated_activate_backward", [&](auto tag) {
    with_activation(f, [&](auto function) {
      using T = typename decltype(tag)::type;
      detail::GatedBackward<decltype(function), T> const rule{
          rows_of<T>(to.gate), rows_of<T>(to.up), rows_of<T>(dout),
          rows_of<T>(in.gate), rows_of<T>(in.up), shape.width};
      launch_gated<T>(q, "tessera::kernels::gated_activate_backward", shape, rule, rule.dgate,
                      rule.dup, rule.dout, rule.gate, rule.up);
    });
  });
}

void cap_logits(Queue& q, TensorView data, float cap) {
  TESSERA_EXPECT(cap > 0.0f);
  with_type(data.dtype(), "cap_logits", [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_flat(q, "tessera::kernels::cap_logits", data.numel(),
                  Flat<Cap, T, T>{{detail::SoftCap(cap)}, data.as<T>(), data.as<T>()});
  });
}

}  // namespace tessera::kernels
