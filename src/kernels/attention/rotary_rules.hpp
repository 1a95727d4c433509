#pragma once
/// Rotations of heads: a position per call on the host, packs of pairs on a device.

#include "launch/launch.hpp"
#include "launch/pack.hpp"
#include "launch/strided_heads.hpp"
#include "tessera/kernels/attention/rotary.hpp"

namespace tessera::kernels::detail {

template <class T>
struct Rotate {
  StridedHeads<T> out;
  StridedHeads<T const> in;
  float const *cos, *sin;  ///< [positions, half]
  std::int32_t const *first_of_row, *each;
  std::int64_t first, sequence;
  int heads, head_dim, half;
  float sign;  ///< sign of the angles

  KOKKOS_FUNCTION std::int64_t position(std::int64_t row) const {
    if (each != nullptr) return first + each[row];
    return first + row % sequence + (first_of_row != nullptr ? first_of_row[row / sequence] : 0);
  }

  /// Host: all heads of (b, t).
  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    std::int64_t const angle = position(row) * half;
    float const *const c = cos + angle, *const s = sin + angle;
    for (int h = 0; h < heads; ++h) {
      T* const y = out.at(row, h);
      T const* const x = in.at(row, h);
      int const n = half;
      float const factor = sign;
#pragma omp simd
      for (int i = 0; i < n; ++i) {
        float const a = load(x[i]), b = load(x[i + n]), sine = factor * s[i];
        store(y[i], a * c[i] - b * sine);
        store(y[i + n], b * c[i] + a * sine);
      }
      if (y == x) continue;
#pragma omp simd
      for (int i = 2 * n; i < head_dim; ++i) y[i] = x[i];
    }
  }

  /// N pairs from pair i on of a head.
  template <int N>
  KOKKOS_FUNCTION void pairs(std::int64_t row, int head, int i) const {
    T const* const x = in.at(row, head) + i;
    T* const y = out.at(row, head) + i;
    RowPack<T, N> lower, upper, to_lower, to_upper;
    float c[N], s[N];
    lower.read(x);
    upper.read(x + half);
    std::int64_t const angle = position(row) * half + i;
    read_floats(c, cos + angle);
    read_floats(s, sin + angle);
    TESSERA_UNROLL
    for (int k = 0; k < N; ++k) {
      float const a = lower.get(k), b = upper.get(k), sine = sign * s[k];
      to_lower.set(k, a * c[k] - b * sine);
      to_upper.set(k, b * c[k] + a * sine);
    }
    to_lower.write(y);
    to_upper.write(y + half);
  }
};

/// Device: N pairs, or a copy of N elements beyond the rotated ones, per index.
template <class T, int N>
struct RotatePack {
  Rotate<T> rule;
  int pairs, packs;  ///< packs of pairs per head, and with those that are copied

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    int const at = static_cast<int>(index % packs);
    std::int64_t const head = index / packs, row = head / rule.heads;
    int const h = static_cast<int>(head % rule.heads);
    if (at < pairs) return rule.template pairs<N>(row, h, at * N);
    std::int64_t const column = 2 * rule.half + (at - pairs) * N;
    RowPack<T, N> same;
    same.read(rule.in.at(row, h) + column);
    same.write(rule.out.at(row, h) + column);
  }
};

}  // namespace tessera::kernels::detail
