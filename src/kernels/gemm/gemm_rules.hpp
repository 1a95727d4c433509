#pragma once
/// Element-wise rules around the library calls of a matrix product. Each handles row @p r.

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "launch/launch.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::kernels::detail {

/// panel[r, j] = float(in[r, j]);  panel has no gaps, in has ld elements a row.
template <class T>
struct ToPanel {
  float* panel;
  T const* in;
  std::int64_t columns, ld;
  KOKKOS_FUNCTION void operator()(std::int64_t r) const {
    float* const __restrict to = panel + r * columns;
    T const* const __restrict from = in + r * ld;
    for (std::int64_t j = 0; j < columns; ++j) to[j] = static_cast<float>(from[j]);
  }
};

/// c[r, j] = T(panel[r, j] + bias[j] + (accumulate ? c[r, j] : 0)), added in fp32 and rounded once;
/// bias may be null.
template <class T>
struct FromPanel {
  T* c;
  float const* panel;
  T const* bias;
  std::int64_t columns, ld;
  bool accumulate;
  KOKKOS_FUNCTION void operator()(std::int64_t r) const {
    T* const __restrict to = c + r * ld;
    float const* const __restrict from = panel + r * columns;
    T const* const __restrict b = bias;
    if (accumulate && b) {
      for (std::int64_t j = 0; j < columns; ++j)
        to[j] = T((from[j] + static_cast<float>(b[j])) + static_cast<float>(to[j]));
    } else if (accumulate) {
      for (std::int64_t j = 0; j < columns; ++j) to[j] = T(from[j] + static_cast<float>(to[j]));
    } else if (b) {
      for (std::int64_t j = 0; j < columns; ++j) to[j] = T(from[j] + static_cast<float>(b[j]));
    } else {
      for (std::int64_t j = 0; j < columns; ++j) to[j] = T(from[j]);
    }
  }
};

/// c[r, j] = (accumulate ? c[r, j] : 0) + bias[j]: what the product is then added to. bias may be
/// null.
template <class TC, class T>
struct BeginWithBias {
  TC* c;
  T const* bias;
  std::int64_t columns, ld;
  bool accumulate;
  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t r) const {
    TC* const row = c + r * ld;
    bool const add = accumulate;
    T const* const b = bias;
    for_chunks(team, columns, [=](std::int64_t first, int count) {
#pragma omp simd
      for (std::int64_t j = first; j < first + count; ++j) {
        float const old = add ? static_cast<float>(row[j]) : 0.0f;
        row[j] = TC(old + (b ? static_cast<float>(b[j]) : 0.0f));
      }
    });
  }
};

}  // namespace tessera::kernels::detail
