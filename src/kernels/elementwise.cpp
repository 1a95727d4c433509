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

/// Sums of up to Width neighbouring columns: four rows at a time into a block's sums, 128 rows a block, the blocks in order.
template <class Out, class In, int Width>
struct ColumnSums {
  Out* out;
  In const* in;
  std::int64_t rows, columns;
  bool accumulate;

  KOKKOS_FUNCTION void add_rows(std::int64_t first, std::int64_t last, std::int64_t column, int width, float* sums) const {
    std::int64_t r = first;
    for (; r + 4 <= last; r += 4) {
      In const* a = in + r * columns + column;
      In const *b = a + columns, *c = b + columns, *d = c + columns;
#pragma omp simd
      for (int i = 0; i < width; ++i) sums[i] += (load(a[i]) + load(b[i])) + (load(c[i]) + load(d[i]));
    }
    for (; r < last; ++r) {
      In const* a = in + r * columns + column;
#pragma omp simd
      for (int i = 0; i < width; ++i) sums[i] += load(a[i]);
    }
  }

  KOKKOS_FUNCTION void operator()(std::int64_t, std::int64_t begin, std::int64_t end) const {
    constexpr std::int64_t block = 128;
    int const width = static_cast<int>(end - begin);
    float total[Width] = {}, sums[Width];
    for (int i = 0; i < width; ++i) total[i] = accumulate ? load(out[begin + i]) : 0.0f;
    for (std::int64_t r = 0; r < rows; r += block) {
      for (int i = 0; i < width; ++i) sums[i] = 0.0f;
      add_rows(r, r + block < rows ? r + block : rows, begin, width, sums);
      for (int i = 0; i < width; ++i) total[i] += sums[i];
    }
#pragma omp simd
    for (int i = 0; i < width; ++i) store(out[begin + i], total[i]);
  }
};

template <class Out, class In>
void sum_columns(Queue& q, Out* out, In const* in, std::int64_t rows, std::int64_t columns, bool accumulate) {
  constexpr int widest = 1024;
  char const* const name = "tessera::kernels::bias_gradient";
  if (q.kind() == memory::QueueKind::stream)
    return detail::parallel_blocks(q, name, columns, 1, ColumnSums<Out, In, 1>{out, in, rows, columns, accumulate});
  // one slice per thread, in whole cache lines; the sums of a column do not depend on the slice it lies in
  std::int64_t const threads = detail::HostSpace().concurrency();
  std::int64_t const slice = (columns / threads + 64) / 64 * 64;
  detail::parallel_blocks(q, name, columns, std::min<std::int64_t>(slice, widest),
                          ColumnSums<Out, In, widest>{out, in, rows, columns, accumulate});
}

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

void bias_gradient(Queue& q, TensorView dbias, ConstTensorView dout, bool accumulate) {
  std::int64_t const columns = dbias.numel();
  TESSERA_EXPECT(columns == 0 || dout.numel() % columns == 0);
  if (columns == 0) return;
  with_type(dbias.dtype(), "bias_gradient", [&](auto to) {
    with_type(dout.dtype(), "bias_gradient", [&](auto from) {
      using Out = typename decltype(to)::type;
      using In = typename decltype(from)::type;
      sum_columns(q, dbias.as<Out>(), dout.as<In>(), dout.numel() / columns, columns, accumulate);
    });
  });
}

}  // namespace tessera::kernels
