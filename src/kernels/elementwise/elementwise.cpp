#include "tessera/kernels/elementwise/elementwise.hpp"

#include "elementwise/flat.hpp"
#include "elementwise/type_pairs.hpp"
#include "launch/convert.hpp"
#include "launch/launch.hpp"
#include "tessera/kernels/elementwise/activation.hpp"

namespace tessera::kernels {
namespace {

using detail::Flat;
using detail::load;
using detail::parallel_flat;
using detail::store;
using detail::with_type;
using detail::with_types;
using memory::note_operands;

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

}  // namespace

void fill(Queue& q, TensorView out, float value) {
  note_operands(q, "tessera::kernels::fill", out);
  with_type(out.dtype(), "fill", [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_flat(q, "tessera::kernels::fill", out.numel(),
                  Flat<Constant, T>{{value}, out.as<T>()});
  });
}

void cast(Queue& q, TensorView out, ConstTensorView in) {
  TESSERA_EXPECT(out.numel() == in.numel());
  note_operands(q, "tessera::kernels::cast", out, in);
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
  note_operands(q, "tessera::kernels::add", accumulator, accumulator, in);
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
  TESSERA_EXPECT(out.numel() == in.numel());
  detail::DropoutFactors const factors(drop);
  if (!factors.active()) {
    if (out.data() != in.data()) cast(q, out, in);
    return;
  }
  note_operands(q, "tessera::kernels::dropout", out, in);
  with_types(in.dtype(), out.dtype(), "dropout", [&](auto from, auto to) {
    using In = typename decltype(from)::type;
    using Out = typename decltype(to)::type;
    parallel_flat(q, "tessera::kernels::dropout", in.numel(),
                  Flat<Dropped, Out, In>{{factors}, out.as<Out>(), in.as<In>()});
  });
}

void residual_add(Queue& q, TensorView out, ConstTensorView residual, ConstTensorView branch,
                  Dropout const& drop) {
  TESSERA_EXPECT(out.numel() == residual.numel() && out.numel() == branch.numel());
  detail::DropoutFactors const factors(drop);
  note_operands(q, "tessera::kernels::residual_add", out, residual, branch);
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
  activate(q, Activation::gelu_new, out, in);
}
void gelu_new_backward(Queue& q, TensorView din, ConstTensorView dout, ConstTensorView in) {
  activate_backward(q, Activation::gelu_new, din, dout, in);
}

}  // namespace tessera::kernels
