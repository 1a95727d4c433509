#pragma once
/// Operands, reference and tolerance for tests of matrix products.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/core/random.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::kernels {

using memory::TensorView;

/// Elements of one dtype with their values as the dtype holds them.
struct Matrix {
  std::int64_t rows, columns;
  Dtype dtype;
  std::vector<std::byte> bytes;

  Matrix(std::int64_t r, std::int64_t c, Dtype d, std::uint64_t stream)
      : rows(r), columns(c), dtype(d), bytes(static_cast<std::size_t>(r * c) * size_of(d)) {
    Philox const random{7, stream};
    for (std::int64_t i = 0; i < r * c; ++i)
      set(i, 2.0f * random.uniform(static_cast<std::uint64_t>(i)) - 1.0f);
  }
  void set(std::int64_t i, float value) {
    if (dtype == Dtype::fp32) reinterpret_cast<float*>(bytes.data())[i] = value;
    if (dtype == Dtype::fp16) reinterpret_cast<float16*>(bytes.data())[i] = float16(value);
    if (dtype == Dtype::bf16) reinterpret_cast<bfloat16*>(bytes.data())[i] = bfloat16(value);
  }
  double get(std::int64_t i) const {
    if (dtype == Dtype::fp32) return reinterpret_cast<float const*>(bytes.data())[i];
    if (dtype == Dtype::fp16)
      return static_cast<float>(reinterpret_cast<float16 const*>(bytes.data())[i]);
    return static_cast<float>(reinterpret_cast<bfloat16 const*>(bytes.data())[i]);
  }
  TensorView view() { return TensorView(bytes.data(), dtype, {rows, columns}); }
};

/// Copies rows to a distance of @p row elements from the previous one; the gaps are NaN.
inline Matrix with_gaps(Matrix const& m, std::int64_t row) {
  Matrix out(m.rows, row, m.dtype, 0);
  for (std::int64_t i = 0; i < m.rows * row; ++i)
    out.set(i, i % row < m.columns ? static_cast<float>(m.get(i / row * m.columns + i % row))
                                   : std::numeric_limits<float>::quiet_NaN());
  return out;
}
/// The first @p columns of each row; false when a gap has become a number.
inline bool take_out_gaps(Matrix& to, Matrix const& from) {
  bool untouched = true;
  for (std::int64_t i = 0; i < from.rows * from.columns; ++i) {
    std::int64_t const r = i / from.columns, j = i % from.columns;
    if (j < to.columns)
      to.set(r * to.columns + j, static_cast<float>(from.get(i)));
    else
      untouched = untouched && std::isnan(from.get(i));
  }
  return untouched;
}

struct Shape {
  std::int64_t m, n, k;
};
struct Case {
  Shape shape;
  bool ta, tb, accumulate, bias;
  float alpha;
  Dtype in, out;
};

inline Matrix operand_a(Case const& c) {
  return c.ta ? Matrix(c.shape.k, c.shape.m, c.in, 1) : Matrix(c.shape.m, c.shape.k, c.in, 1);
}
inline Matrix operand_b(Case const& c) {
  return c.tb ? Matrix(c.shape.n, c.shape.k, c.in, 2) : Matrix(c.shape.k, c.shape.n, c.in, 2);
}

/// Serial reference in double, and the bound of its distance: fp32 sums of k terms below 1, then
/// one rounding to c's dtype.
inline double expected(Case const& c, Matrix const& a, Matrix const& b, Matrix const& bias,
                       Matrix const& old, std::int64_t i, std::int64_t j) {
  double sum = 0;
  for (std::int64_t l = 0; l < c.shape.k; ++l)
    sum += a.get(c.ta ? l * c.shape.m + i : i * c.shape.k + l) *
           b.get(c.tb ? j * c.shape.k + l : l * c.shape.n + j);
  return c.alpha * sum + (c.bias ? bias.get(j) : 0.0) +
         (c.accumulate ? old.get(i * c.shape.n + j) : 0.0);
}
inline double tolerance(Case const& c, double value) {
  double const rounding = c.out == Dtype::bf16 ? 0x1p-8 : c.out == Dtype::fp16 ? 0x1p-11 : 0.0;
  return std::abs(value) * rounding + 1e-6 * (1.0 + std::sqrt(static_cast<double>(c.shape.k)));
}

/// All transposes, accumulations, biases and factors of one shape.
template <class F>
void for_all(Shape shape, Dtype in, Dtype out, F&& f) {
  for (int bits = 0; bits < 16; ++bits)
    for (float alpha : {1.0f, -0.375f})
      f(Case{shape, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, alpha, in,
             out});
}

/// Runs a product and compares it with the reference: every element of small products, a spread of
/// large ones.
template <class Run>
void check(Case const& c, Run&& run) {
  Matrix a = operand_a(c), b = operand_b(c), bias(1, c.shape.n, c.in, 3);
  Matrix const old(c.shape.m, c.shape.n, c.out, 4);
  Matrix result = old;
  run(result, a, b, bias);
  std::int64_t const stride =
      std::max<std::int64_t>(1, c.shape.m * c.shape.n * c.shape.k / 4'000'000);
  for (std::int64_t e = 0; e < c.shape.m * c.shape.n; e += stride) {
    double const want = expected(c, a, b, bias, old, e / c.shape.n, e % c.shape.n);
    ASSERT_NEAR(result.get(e), want, tolerance(c, want))
        << "element " << e << " of [" << c.shape.m << ", " << c.shape.k << "]" << (c.ta ? "^T" : "")
        << " x [" << c.shape.k << ", " << c.shape.n << "]" << (c.tb ? "^T" : "")
        << (c.accumulate ? " accumulated" : "") << (c.bias ? " with bias" : "") << ", "
        << name_of(c.in) << " to " << name_of(c.out);
  }
}

/// The dtypes of a, b and of c.
inline auto all_dtypes() {
  return ::testing::Values(
      std::tuple(Dtype::fp32, Dtype::fp32), std::tuple(Dtype::bf16, Dtype::bf16),
      std::tuple(Dtype::bf16, Dtype::fp32), std::tuple(Dtype::fp16, Dtype::fp16),
      std::tuple(Dtype::fp16, Dtype::fp32));
}
inline std::string dtypes_name(::testing::TestParamInfo<std::tuple<Dtype, Dtype>> const& info) {
  return std::string(name_of(std::get<0>(info.param))) + "_to_" +
         std::string(name_of(std::get<1>(info.param)));
}

}  // namespace tessera::kernels
