#include "tessera/kernels/elementwise/column_scaling.hpp"

#include <type_traits>

#include "launch/convert.hpp"
#include "launch/launch.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels {
namespace {

using detail::for_chunks;
using detail::load;
using detail::parallel_rows;
using detail::store;
using detail::with_type;
using memory::note_operands;

struct ScaleColumn {
  static constexpr bool is_fp32 = false;
  float const* factors;
  float offset;
  template <class T>
  KOKKOS_FUNCTION void operator()(T& out, T in, std::int64_t column) const {
    store(out, load(in) * (factors[column] + offset));
  }
};
struct AddScaledColumn {
  static constexpr bool is_fp32 = false;
  float const *factors, *bias;  ///< bias: or null
  template <class T>
  KOKKOS_FUNCTION void operator()(T& out, T in, std::int64_t column) const {
    float const value = load(in) - (bias ? bias[column] : 0.0f);
    store(out, load(out) + (factors[column] - 1.0f) * value);
  }
};
struct MultiplyColumn {
  static constexpr bool is_fp32 = true;
  float const* factors;
  template <class T>
  KOKKOS_FUNCTION void operator()(float& out, T in, std::int64_t column) const {
    out *= load(in) * factors[column];
  }
};

/// Applies an operation of an element and its column to the elements of a row.
template <class Op, class Out, class In>
struct ByColumn {
  Op op;
  Out* out;
  In const* in;
  std::int64_t columns;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    Out* const to = out + row * columns;
    In const* const from = in + row * columns;
    Op const apply = op;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      for (int i = 0; i < n; ++i) apply(to[c + i], from[c + i], c + i);
    });
  }
};

/// The result is fp32 if the operation's is, else of the dtype of @p in.
template <class Op>
void apply_by_column(Queue& q, char const* name, TensorView out, ConstTensorView in, Op const& op) {
  std::int64_t const rows = out.dim(0), columns = out.dim(1);
  TESSERA_EXPECT(out.numel() == in.numel());
  note_operands(q, name, out, in);
  with_type(in.dtype(), name, [&](auto tag) {
    using In = typename decltype(tag)::type;
    using Out = std::conditional_t<Op::is_fp32, float, In>;
    parallel_rows(q, name, rows, ByColumn<Op, Out, In>{op, out.as<Out>(), in.as<In>(), columns});
  });
}

/// Squared norms become factors, row by row of the adapted matrix.
struct RowFactors {
  float *factors, *inverses;
  float const *magnitudes, *b, *products;
  int rank;

  KOKKOS_FUNCTION void write(std::int64_t row, float squares) const {
    for (int r = 0; r < rank; ++r) squares += products[row * rank + r] * b[row * rank + r];
    float const inverse = 1.0f / Kokkos::sqrt(squares > 0.0f ? squares : 0.0f);
    inverses[row] = inverse;
    factors[row] = magnitudes[row] * inverse;
  }
};

/// Rows of a matrix [out, in].
template <class T>
struct NormsOfRows {
  RowFactors to;
  T const* weight;
  std::int64_t columns;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    T const* const w = weight + row * columns;
    float squares = 0.0f;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      float part = 0.0f;
#pragma omp simd reduction(+ : part)
      for (int i = 0; i < n; ++i) part += load(w[c + i]) * load(w[c + i]);
      squares += part;
    });
    squares = team.sum(squares);
    if (team.rank() == 0) to.write(row, squares);
  }
};

/// Columns of a matrix [in, out]: up to `width` neighbors at a time, 128 rows per partial sum.
template <class T>
struct NormsOfColumns {
  static constexpr int width = 64;
  RowFactors to;
  T const* weight;
  std::int64_t rows, columns;

  KOKKOS_FUNCTION void operator()(std::int64_t, std::int64_t begin, std::int64_t end) const {
    constexpr std::int64_t chunk = 128;
    int const count = static_cast<int>(end - begin);
    float total[width] = {}, sums[width];
    for (std::int64_t first = 0; first < rows; first += chunk) {
      for (int i = 0; i < count; ++i) sums[i] = 0.0f;
      std::int64_t const last = first + chunk < rows ? first + chunk : rows;
      for (std::int64_t r = first; r < last; ++r) {
        T const* const w = weight + r * columns + begin;
#pragma omp simd
        for (int i = 0; i < count; ++i) sums[i] += load(w[i]) * load(w[i]);
      }
      for (int i = 0; i < count; ++i) total[i] += sums[i];
    }
    for (int i = 0; i < count; ++i) to.write(begin + i, total[i]);
  }
};

}  // namespace

void scale_columns(Queue& q, TensorView out, ConstTensorView in, ConstTensorView factors,
                   float offset) {
  apply_by_column(q, "tessera::kernels::scale_columns", out, in,
                  ScaleColumn{factors.as<float>(), offset});
}

void add_scaled_columns(Queue& q, TensorView out, ConstTensorView in, ConstTensorView factors,
                        ConstTensorView bias) {
  apply_by_column(q, "tessera::kernels::add_scaled_columns", out, in,
                  AddScaledColumn{factors.as<float>(), bias.empty() ? nullptr : bias.as<float>()});
}

void multiply_columns(Queue& q, TensorView out, ConstTensorView in, ConstTensorView factors) {
  apply_by_column(q, "tessera::kernels::multiply_columns", out, in,
                  MultiplyColumn{factors.as<float>()});
}

void adapted_row_factors(Queue& q, TensorView factors, TensorView inverses,
                         ConstTensorView magnitudes, AdaptedMatrix const& matrix) {
  char const* const name = "tessera::kernels::adapted_row_factors";
  std::int64_t const rows = matrix.weight.dim(0), columns = matrix.weight.dim(1),
                     outputs = matrix.transposed ? columns : rows;
  TESSERA_EXPECT(factors.numel() == outputs && inverses.numel() == outputs &&
                 magnitudes.numel() == outputs && matrix.b.dim(0) == outputs &&
                 matrix.products.numel() == matrix.b.numel());
  RowFactors const to{factors.as<float>(),         inverses.as<float>(),
                      magnitudes.as<float>(),      matrix.b.as<float>(),
                      matrix.products.as<float>(), static_cast<int>(matrix.b.dim(1))};
  note_operands(q, name, factors, matrix.weight);
  with_type(matrix.weight.dtype(), "adapted_row_factors", [&](auto tag) {
    using T = typename decltype(tag)::type;
    T const* const weight = matrix.weight.as<T>();
    if (!matrix.transposed)
      return parallel_rows(q, name, rows, NormsOfRows<T>{to, weight, columns});
    std::int64_t const width = detail::on_device(q) ? 1 : NormsOfColumns<T>::width;
    detail::CallWithChunk<NormsOfColumns<T>> const rule{
        {to, weight, rows, columns}, columns, width};
    detail::parallel_for(q, name, ceil_divide(columns, width), rule);
  });
}

}  // namespace tessera::kernels
