#include "tessera/kernels/elementwise.hpp"

#include "detail/convert.hpp"
#include "detail/dropout.hpp"
#include "detail/fast_math.hpp"
#include "detail/launch.hpp"

namespace tessera::kernels {
namespace {

using detail::load;
using detail::store;
using detail::with_type;

template <class T>
struct Fill {
  T* out;
  T value;
  KOKKOS_FUNCTION void operator()(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t i = begin; i < end; ++i) out[i] = value;
  }
};

template <class Out, class In>
struct Cast {
  Out* out;
  In const* in;
  KOKKOS_FUNCTION void operator()(std::int64_t begin, std::int64_t end) const {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(out[i], load(in[i]));
  }
};

template <class Out, class In>
struct Add {
  Out* accumulator;
  In const* in;
  KOKKOS_FUNCTION void operator()(std::int64_t begin, std::int64_t end) const {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(accumulator[i], load(accumulator[i]) + load(in[i]));
  }
};

template <class T>
struct Scale {
  T* data;
  float factor;
  KOKKOS_FUNCTION void operator()(std::int64_t begin, std::int64_t end) const {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(data[i], load(data[i]) * factor);
  }
};

template <class T>
struct ApplyDropout {
  T* out;
  T const* in;
  detail::DropoutFactors factors;
  KOKKOS_FUNCTION void operator()(std::int64_t begin, std::int64_t end) const {
    float factor[detail::dropout_chunk];
    for (std::int64_t at = begin; at < end; at += detail::dropout_chunk) {
      int const count = static_cast<int>(end - at < detail::dropout_chunk ? end - at : detail::dropout_chunk);
      factors.fill(static_cast<std::uint64_t>(at), count, factor);
#pragma omp simd
      for (int i = 0; i < count; ++i) store(out[at + i], load(in[at + i]) * factor[i]);
    }
  }
};

template <class T>
struct Sum {
  T* out;
  T const* residual;
  T const* branch;
  KOKKOS_FUNCTION void operator()(std::int64_t begin, std::int64_t end) const {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) store(out[i], load(residual[i]) + load(branch[i]));
  }
};

template <class T>
struct DropoutSum {
  T* out;
  T const* residual;
  T const* branch;
  detail::DropoutFactors factors;
  KOKKOS_FUNCTION void operator()(std::int64_t begin, std::int64_t end) const {
    float factor[detail::dropout_chunk];
    for (std::int64_t at = begin; at < end; at += detail::dropout_chunk) {
      int const count = static_cast<int>(end - at < detail::dropout_chunk ? end - at : detail::dropout_chunk);
      factors.fill(static_cast<std::uint64_t>(at), count, factor);
#pragma omp simd
      for (int i = 0; i < count; ++i) store(out[at + i], load(residual[at + i]) + load(branch[at + i]) * factor[i]);
    }
  }
};

constexpr float gelu_slope = 2.0f * 0.7978845608f;  // 2 sqrt(2/pi)
constexpr float gelu_cubic = 0.044715f;

/// 0.5 x (1 + tanh(u)) = x logistic(2u).
template <class T>
struct Gelu {
  T* out;
  T const* in;
  KOKKOS_FUNCTION void operator()(std::int64_t begin, std::int64_t end) const {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      float const x = load(in[i]);
      store(out[i], x * detail::logistic(gelu_slope * (x + gelu_cubic * x * x * x)));
    }
  }
};

/// With s = logistic(2u): d/dx (x s) = s + x s (1 - s) 2u'.
template <class T>
struct GeluBackward {
  T* din;
  T const* dout;
  T const* in;
  KOKKOS_FUNCTION void operator()(std::int64_t begin, std::int64_t end) const {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      float const x = load(in[i]);
      float const s = detail::logistic(gelu_slope * (x + gelu_cubic * x * x * x));
      float const two_du = gelu_slope * (1.0f + 3.0f * gelu_cubic * x * x);
      store(din[i], load(dout[i]) * (s + x * s * (1.0f - s) * two_du));
    }
  }
};

}  // namespace

void fill(Queue& q, TensorView out, float value) {
  with_type(out.dtype(), "fill", [&](auto tag) {
    using T = typename decltype(tag)::type;
    detail::parallel_ranges(q, "tessera::kernels::fill", out.numel(), Fill<T>{out.as<T>(), T(value)});
  });
}

void cast(Queue& q, TensorView out, ConstTensorView in) {
  TESSERA_EXPECT(out.numel() == in.numel());
  with_type(out.dtype(), "cast", [&](auto to) {
    with_type(in.dtype(), "cast", [&](auto from) {
      using Out = typename decltype(to)::type;
      using In = typename decltype(from)::type;
      detail::parallel_ranges(q, "tessera::kernels::cast", in.numel(), Cast<Out, In>{out.as<Out>(), in.as<In>()});
    });
  });
}

void add(Queue& q, TensorView accumulator, ConstTensorView in) {
  TESSERA_EXPECT(accumulator.numel() == in.numel());
  with_type(accumulator.dtype(), "add", [&](auto to) {
    with_type(in.dtype(), "add", [&](auto from) {
      using Out = typename decltype(to)::type;
      using In = typename decltype(from)::type;
      detail::parallel_ranges(q, "tessera::kernels::add", in.numel(), Add<Out, In>{accumulator.as<Out>(), in.as<In>()});
    });
  });
}

void scale(Queue& q, TensorView data, float factor) {
  with_type(data.dtype(), "scale", [&](auto tag) {
    using T = typename decltype(tag)::type;
    detail::parallel_ranges(q, "tessera::kernels::scale", data.numel(), Scale<T>{data.as<T>(), factor});
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
    detail::parallel_ranges(q, "tessera::kernels::dropout", in.numel(), ApplyDropout<T>{out.as<T>(), in.as<T>(), factors});
  });
}

void residual_add(Queue& q, TensorView out, ConstTensorView residual, ConstTensorView branch, Dropout const& drop) {
  TESSERA_EXPECT(out.numel() == residual.numel() && out.numel() == branch.numel());
  detail::DropoutFactors const factors(drop);
  with_type(out.dtype(), "residual_add", [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const to = out.as<T>();
    T const *const a = residual.as<T>(), *const b = branch.as<T>();
    char const* const name = "tessera::kernels::residual_add";
    if (factors.active()) detail::parallel_ranges(q, name, out.numel(), DropoutSum<T>{to, a, b, factors});
    else detail::parallel_ranges(q, name, out.numel(), Sum<T>{to, a, b});
  });
}

void gelu_new(Queue& q, TensorView out, ConstTensorView in) {
  TESSERA_EXPECT(out.numel() == in.numel());
  with_type(out.dtype(), "gelu_new", [&](auto tag) {
    using T = typename decltype(tag)::type;
    detail::parallel_ranges(q, "tessera::kernels::gelu_new", in.numel(), Gelu<T>{out.as<T>(), in.as<T>()});
  });
}

void gelu_new_backward(Queue& q, TensorView din, ConstTensorView dout, ConstTensorView in) {
  TESSERA_EXPECT(din.numel() == in.numel() && dout.numel() == in.numel());
  with_type(din.dtype(), "gelu_new_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    detail::parallel_ranges(q, "tessera::kernels::gelu_new_backward", in.numel(),
                            GeluBackward<T>{din.as<T>(), dout.as<T>(), in.as<T>()});
  });
}

}  // namespace tessera::kernels
