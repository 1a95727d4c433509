#include "tessera/kernels/elementwise.hpp"

#include "detail/convert.hpp"
#include "detail/fast_math.hpp"
#include "detail/flat.hpp"
#include "detail/launch.hpp"

namespace tessera::kernels {
namespace {

using detail::Flat;
using detail::load;
using detail::parallel_flat;
using detail::store;
using detail::with_type;

/// What the flat kernels compute of one element, see detail/flat.hpp.
struct Constant {
  static constexpr bool draws = false;
  float value;
  KOKKOS_FUNCTION float operator()() const { return value; }
};
struct Same {
  static constexpr bool draws = false;
  KOKKOS_FUNCTION float operator()(float x) const { return x; }
};
struct Plus {
  static constexpr bool draws = false;
  KOKKOS_FUNCTION float operator()(float x, float y) const { return x + y; }
};
struct Times {
  static constexpr bool draws = false;
  float factor;
  KOKKOS_FUNCTION float operator()(float x) const { return x * factor; }
};
struct Dropped {
  static constexpr bool draws = true;
  detail::DropoutFactors factors;
  KOKKOS_FUNCTION float operator()(float factor, float x) const { return x * factor; }
};
struct PlusDropped {
  static constexpr bool draws = true;
  detail::DropoutFactors factors;
  KOKKOS_FUNCTION float operator()(float factor, float residual, float branch) const {
    return residual + branch * factor;
  }
};

constexpr float gelu_slope = 2.0f * 0.7978845608f;  // 2 sqrt(2/pi)
constexpr float gelu_cubic = 0.044715f;

/// 0.5 x (1 + tanh(u)) = x logistic(2u).
struct Gelu {
  static constexpr bool draws = false;
  KOKKOS_FUNCTION float operator()(float x) const {
    return x * detail::logistic(gelu_slope * (x + gelu_cubic * x * x * x));
  }
};
/// With s = logistic(2u): d/dx (x s) = s + x s (1 - s) 2u'.
struct GeluBackward {
  static constexpr bool draws = false;
  KOKKOS_FUNCTION float operator()(float dout, float x) const {
    float const s = detail::logistic(gelu_slope * (x + gelu_cubic * x * x * x));
    float const two_du = gelu_slope * (1.0f + 3.0f * gelu_cubic * x * x);
    return dout * (s + x * s * (1.0f - s) * two_du);
  }
};

}  // namespace

void fill(Queue& q, TensorView out, float value) {
  with_type(out.dtype(), "fill", [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_flat(q, "tessera::kernels::fill", out.numel(),
                  Flat<Constant, T>{{value}, out.as<T>()});
  });
}

void cast(Queue& q, TensorView out, ConstTensorView in) {
  TESSERA_EXPECT(out.numel() == in.numel());
  with_type(out.dtype(), "cast", [&](auto to) {
    with_type(in.dtype(), "cast", [&](auto from) {
      using Out = typename decltype(to)::type;
      using In = typename decltype(from)::type;
      parallel_flat(q, "tessera::kernels::cast", in.numel(),
                    Flat<Same, Out, In>{{}, out.as<Out>(), in.as<In>()});
    });
  });
}

void add(Queue& q, TensorView accumulator, ConstTensorView in) {
  TESSERA_EXPECT(accumulator.numel() == in.numel());
  with_type(accumulator.dtype(), "add", [&](auto to) {
    with_type(in.dtype(), "add", [&](auto from) {
      using Out = typename decltype(to)::type;
      using In = typename decltype(from)::type;
      Out* const sum = accumulator.as<Out>();
      parallel_flat(q, "tessera::kernels::add", in.numel(),
                    Flat<Plus, Out, Out, In>{{}, sum, sum, in.as<In>()});
    });
  });
}

void scale(Queue& q, TensorView data, float factor) {
  with_type(data.dtype(), "scale", [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_flat(q, "tessera::kernels::scale", data.numel(),
                  Flat<Times, T, T>{{factor}, data.as<T>(), data.as<T>()});
  });
}

void dropout(Queue& q, TensorView out, ConstTensorView in, Dropout const& drop) {
  TESSERA_EXPECT(out.numel() == in.numel() && out.dtype() == in.dtype());
  detail::DropoutFactors const factors(drop);
  if (!factors.active()) {
    if (out.data() != in.data()) cast(q, out, in);
    return;
  }
  with_type(out.dtype(), "dropout", [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_flat(q, "tessera::kernels::dropout", in.numel(),
                  Flat<Dropped, T, T>{{factors}, out.as<T>(), in.as<T>()});
  });
}

void residual_add(Queue& q, TensorView out, ConstTensorView residual, ConstTensorView branch,
                  Dropout const& drop) {
  TESSERA_EXPECT(out.numel() == residual.numel() && out.numel() == branch.numel());
  detail::DropoutFactors const factors(drop);
  with_type(out.dtype(), "residual_add", [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const to = out.as<T>();
    T const *const a = residual.as<T>(), *const b = branch.as<T>();
    char const* const name = "tessera::kernels::residual_add";
    if (factors.active())
      parallel_flat(q, name, out.numel(), Flat<PlusDropped, T, T, T>{{factors}, to, a, b});
    else
      parallel_flat(q, name, out.numel(), Flat<Plus, T, T, T>{{}, to, a, b});
  });
}

void gelu_new(Queue& q, TensorView out, ConstTensorView in) {
  TESSERA_EXPECT(out.numel() == in.numel());
  with_type(out.dtype(), "gelu_new", [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_flat(q, "tessera::kernels::gelu_new", in.numel(),
                  Flat<Gelu, T, T>{{}, out.as<T>(), in.as<T>()});
  });
}

void gelu_new_backward(Queue& q, TensorView din, ConstTensorView dout, ConstTensorView in) {
  TESSERA_EXPECT(din.numel() == in.numel() && dout.numel() == in.numel());
  with_type(din.dtype(), "gelu_new_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_flat(q, "tessera::kernels::gelu_new_backward", in.numel(),
                  Flat<GeluBackward, T, T, T>{{}, din.as<T>(), dout.as<T>(), in.as<T>()});
  });
}

}  // namespace tessera::kernels
