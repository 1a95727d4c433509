#include "tessera/kernels/elementwise/activation.hpp"

#include "elementwise/activation_rules.hpp"
#include "elementwise/flat.hpp"
#include "launch/launch.hpp"

namespace tessera::kernels {
namespace {

using detail::Flat;
using detail::parallel_flat;
using detail::with_activation;
using detail::with_type;

/// What the flat kernels compute of one element, see detail/flat.hpp.
template <class F>
struct Apply {
  static constexpr bool draws = false, is_long = true;
  KOKKOS_FUNCTION float operator()(float x) const { return F::value(x); }
};
template <class F>
struct ApplyBackward {
  static constexpr bool draws = false, is_long = true;
  KOKKOS_FUNCTION float operator()(float dout, float x) const { return dout * F::slope(x); }
};
struct Cap {
  static constexpr bool draws = false;
  detail::SoftCap cap;
  KOKKOS_FUNCTION float operator()(float x) const { return cap.value(x); }
};

}  // namespace

void activate(Queue& q, Activation f, TensorView out, ConstTensorView in) {
  TESSERA_EXPECT(out.numel() == in.numel());
  memory::note_operands(q, "tessera::kernels::activate", out, in);
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
  memory::note_operands(q, "tessera::kernels::activate_backward", din, dout, in);
  with_type(din.dtype(), "activate_backward", [&](auto tag) {
    with_activation(f, [&](auto rule) {
      using T = typename decltype(tag)::type;
      parallel_flat(
          q, "tessera::kernels::activate_backward", in.numel(),
          Flat<ApplyBackward<decltype(rule)>, T, T, T>{{}, din.as<T>(), dout.as<T>(), in.as<T>()});
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
