#pragma once
/// Sum of squares of a block of a gradient.

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include "detail/prefetch.hpp"

namespace tessera::kernels::detail {

/// partial[block] = sum over the block of in[i]^2 in double. Thirty-two running sums, element i goes to sum i mod 32, added
/// pairwise at the end: the order is fixed and the loop vectorises. The square of any finite fp32 is finite in double, and so is the
/// sum of 2^63 of them: the sum is finite exactly when every element is.
template <class T>
struct SumOfSquares {
  static constexpr int lanes = 32;
  static constexpr int chunk = 256;   ///< widened before it is summed: both in one loop vectorise badly for 16-bit elements
  static constexpr int ahead = 1024;  ///< prefetch distance in elements; a third faster than without (docs/performance.md)
  double* partial;
  T const* in;

  KOKKOS_FUNCTION void operator()(std::int64_t block, std::int64_t begin, std::int64_t end) const {
    double sum[lanes] = {};
    std::int64_t at = begin;
    for (; at + chunk <= end; at += chunk) {
      prefetch<chunk>(in + at + ahead);
      add_chunk(sum, in + at);
    }
    for (std::int64_t i = at; i < end; ++i) {
      double const v = static_cast<double>(static_cast<float>(in[i]));
      sum[(i - at) % lanes] += v * v;
    }
    for (int half = lanes / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) sum[j] += sum[j + half];
    partial[block] = sum[0];
  }

 private:
  static KOKKOS_FUNCTION void add_chunk(double* __restrict sum, T const* __restrict x) {
    if constexpr (std::is_same_v<T, float>) {
      add_wide(sum, x);
    } else {
      float wide[chunk];
      for (int i = 0; i < chunk; ++i) wide[i] = static_cast<float>(x[i]);
      add_wide(sum, wide);
    }
  }
  static KOKKOS_FUNCTION void add_wide(double* __restrict sum, float const* __restrict x) {
    double s[lanes];
    for (int j = 0; j < lanes; ++j) s[j] = sum[j];
    for (int i = 0; i < chunk; i += lanes)
      for (int j = 0; j < lanes; ++j) {
        double const v = static_cast<double>(x[i + j]);
        s[j] += v * v;
      }
    for (int j = 0; j < lanes; ++j) sum[j] = s[j];
  }
};

/// The same sums with the lanes of a team sharing a block: lane l of L adds elements l, l + L, ... The order is fixed, another than above.
template <class T>
struct SumOfSquaresRows {
  double* partial;
  T const* in;
  std::int64_t numel, block;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(Lanes const& lanes, std::int64_t row) const {
    std::int64_t const begin = row * block, end = begin + block < numel ? begin + block : numel;
    double sum = 0.0;
    for (std::int64_t i = begin + lanes.rank(); i < end; i += lanes.size()) {
      double const v = static_cast<double>(static_cast<float>(in[i]));
      sum += v * v;
    }
    sum = lanes.sum(sum);
    if (lanes.rank() == 0) partial[row] = sum;
  }
};

}  // namespace tessera::kernels::detail
