#pragma once
/// The device's traversal of the backward pass of layer norm (host: layer_norm.cpp).

#include <algorithm>

#include "elementwise/type_pairs.hpp"
#include "norm/layer_norm_device.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

/// A chunk of rows per team. With x^ = (x - mean) rstd and h = dout gamma:
///   din (+)= rstd (h - mean(h) - x^ mean(h x^)),   parts[chunk] = { sum dout x^, sum dout } [2, C]
///   over the rows of the chunk in their order.
template <class T, int Threads, class Copy = T>
struct TeamNormalizeBackward {
  using Part = NormPart<T>;
  using Elements = typename Part::Elements;
  static constexpr int width = Part::width, warp_sums = team_sum_floats<2 * norm_rows, Threads>;
  static constexpr std::size_t scratch_floats = 2 * warp_sums;

  T* din;
  T const *dout, *in;
  float const *mean, *rstd;
  T const* gamma;
  float* parts;
  std::int64_t rows, columns, chunk;  ///< rows per chunk, a multiple of norm_rows
  bool accumulate;
  Copy* copy = nullptr;  ///< receives din as well, or null

  std::int64_t teams() const { return ceil_divide(rows, chunk); }

  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    std::int64_t const end = (index + 1) * chunk < rows ? (index + 1) * chunk : rows;
    Part part{index * chunk, end, columns, std::int64_t{team.rank()} * width};
    bool const mine = part.column < columns;
    Elements g;
    if (mine) g.read(gamma + part.column);
    float dgamma[width], dbeta[width];
    TESSERA_UNROLL
    for (int i = 0; i < width; ++i) dgamma[i] = dbeta[i] = 0.0f;
    float* scratch = team.scratch();
    for (; part.first < end; part.first += norm_rows) {
      some_rows(team, scratch, part, g, dgamma, dbeta);
      scratch =
          team.scratch() + (scratch == team.scratch()
                                ? warp_sums
                                : 0);  // the other half, while some threads still read this one
    }
    if (!mine) return;
    float* const to = parts + 2 * index * columns + part.column;
    write_floats(to, dgamma);
    write_floats(to + columns, dbeta);
  }

  template <class Team>
  TESSERA_FUNCTION void some_rows(Team const& team, float* scratch, Part const& part,
                                  Elements const& g, float (&dgamma)[width],
                                  float (&dbeta)[width]) const {
    Elements x[norm_rows], dy[norm_rows], before[norm_rows];
    part.read(x, in);
    part.read(dy, dout);
    if (accumulate) part.read(before, din);
    float average[norm_rows], inverse[norm_rows], sums[2 * norm_rows];
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r) {
      sums[2 * r] = sums[2 * r + 1] = 0.0f;
      if (!part.has(r)) continue;
      average[r] = mean[part.first + r];
      inverse[r] = rstd[part.first + r];
      TESSERA_UNROLL
      for (int i = 0; i < width; ++i) {
        float const h = dy[r].get(i) * g.get(i);
        sums[2 * r] += h;
        sums[2 * r + 1] += h * ((x[r].get(i) - average[r]) * inverse[r]);
      }
    }
    sum_over_team<Threads>(team, scratch, sums);
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r) {
      if (!part.has(r)) continue;
      float const mean_h = sums[2 * r] / static_cast<float>(columns),
                  mean_hx = sums[2 * r + 1] / static_cast<float>(columns);
      Elements dx;
      TESSERA_UNROLL
      for (int i = 0; i < width; ++i) {
        float const d = dy[r].get(i), normal = (x[r].get(i) - average[r]) * inverse[r];
        float const base = accumulate ? before[r].get(i) : 0.0f;
        dx.set(i, base + inverse[r] * (d * g.get(i) - mean_h - normal * mean_hx));
        dgamma[i] += d * normal;
        dbeta[i] += d;
      }
      dx.write(din + part.at(r));
      if (copy) write_converted<width>(copy + part.at(r), dx);
    }
  }
};

/// Rows per chunk in the backward pass, a function of the number of rows: at most 512 chunks (an
/// H200 runs 528 teams of 128 threads, four per multiprocessor) of at least 16 rows. The partial
/// sums, 8 bytes per column and chunk, are then at most a twelfth of the bytes read and written.
inline std::int64_t rows_per_norm_chunk(std::int64_t rows) {
  constexpr std::int64_t max_chunks = 512, min_rows = 16;
  std::int64_t const each = std::max(min_rows, ceil_divide(rows, max_chunks));
  return round_up(each, norm_rows);
}

}  // namespace tessera::kernels::detail
