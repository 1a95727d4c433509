#pragma once
/// Sum of squares of a block of a gradient.

#include <Kokkos_Core.hpp>
#include <cstdint>

namespace tessera::kernels::detail {

/// partial[block] = sum over the block of in[i]^2 in double. Sixteen running sums, element i goes to sum i mod 16, added pairwise
/// at the end: the order is fixed and the loop vectorises. The square of any finite fp32 is finite in double, and so is the
/// sum of 2^63 of them: the sum is finite exactly when every element is.
template <class T>
struct SumOfSquares {
  static constexpr int lanes = 16;
  double* partial;
  T const* in;
  KOKKOS_FUNCTION void operator()(std::int64_t block, std::int64_t begin, std::int64_t end) const {
    double sum[lanes] = {};
    T const* const __restrict x = in + begin;
    std::int64_t const count = end - begin, whole = count / lanes * lanes;
    for (std::int64_t i = 0; i < whole; i += lanes)
      for (int j = 0; j < lanes; ++j) {
        double const v = static_cast<double>(static_cast<float>(x[i + j]));
        sum[j] += v * v;
      }
    for (std::int64_t i = whole; i < count; ++i) {
      double const v = static_cast<double>(static_cast<float>(x[i]));
      sum[i - whole] += v * v;
    }
    for (int half = lanes / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) sum[j] += sum[j + half];
    partial[block] = sum[0];
  }
};

}  // namespace tessera::kernels::detail
