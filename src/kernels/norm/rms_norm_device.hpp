#pragma once
/// The device's traversal of RMS norm: a team keeps its rows in registers, as in
/// layer_norm_device.hpp. The host's traversal is rms_norm.cpp.

#include "norm/layer_norm_backward_device.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/kernels/norm/rms_norm.hpp"

namespace tessera::kernels::detail {

/// gamma and how it is used.
template <class T>
struct RmsGamma {
  T const* data;
  float offset;
  bool round_first;

  explicit RmsGamma(RmsNormWeights const& norm)
      : data(norm.gamma.as<T>()),
        offset(norm.gamma_offset),
        round_first(norm.rounding == RmsNormRounding::before_gamma) {}

  /// x^ as it is multiplied by gamma.
  TESSERA_FUNCTION float rounded(float normal) const {
    T element;
    store(element, normal);
    return round_first ? load(element) : normal;
  }
};

template <class T, int Threads, class Result = T>
struct TeamRmsNormalize {
  using Part = NormPart<T>;
  using Elements = typename Part::Elements;
  static constexpr std::size_t scratch_floats = team_sum_floats<norm_rows, Threads>;
  static constexpr int resident_threads = 1024;

  Result* out;
  float* rstd;
  T const* in;
  RmsGamma<T> gamma;
  std::int64_t rows, columns;
  float epsilon;

  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    Elements x[norm_rows];
    Part const part{index * norm_rows, rows, columns, std::int64_t{team.rank()} * Part::width};
    part.read(x, in);
    normalize(team, part, x);
  }
  std::int64_t teams() const { return ceil_divide(rows, norm_rows); }

  template <class Team>
  TESSERA_FUNCTION void normalize(Team const& team, Part const& part,
                                  Elements const (&x)[norm_rows]) const {
    float inverse[norm_rows];
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r) {
      inverse[r] = 0.0f;
      TESSERA_UNROLL
      for (int i = 0; i < Part::width; ++i)
        if (part.has(r)) inverse[r] += x[r].get(i) * x[r].get(i);
    }
    sum_over_team<Threads>(team, team.scratch(), inverse);
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r) {
      inverse[r] = 1.0f / std::sqrt(inverse[r] / static_cast<float>(columns) + epsilon);
      if (team.rank() == r && part.first + r < rows) rstd[part.first + r] = inverse[r];
    }
    if (part.column >= columns) return;
    Elements g;
    RowPack<Result, Part::width> y;
    g.read(gamma.data + part.column);
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r) {
      if (!part.has(r)) continue;
      TESSERA_UNROLL
      for (int i = 0; i < Part::width; ++i)
        y.set(i, gamma.rounded(x[r].get(i) * inverse[r]) * (gamma.offset + g.get(i)));
      y.write(out + part.at(r));
    }
  }
};

/// A chunk of rows per team. With x^ = in rstd and h = dout (offset + gamma):
///   din (+)= rstd (h - x^ mean(h x^)),   parts[chunk] = sum dout x^ [C] over the rows of the chunk
///   in their order.
template <class T, int Threads, class Copy = T>
struct TeamRmsNormalizeBackward {
  using Part = NormPart<T>;
  using Elements = typename Part::Elements;
  static constexpr int width = Part::width, warp_sums = team_sum_floats<norm_rows, Threads>;
  static constexpr std::size_t scratch_floats = 2 * warp_sums;

  T* din;
  T const *dout, *in;
  float const* rstd;
  RmsGamma<T> gamma;
  float* parts;
  std::int64_t rows, columns, chunk;  ///< rows per chunk, a multiple of norm_rows
  bool accumulate;
  Copy* copy = nullptr;  ///< receives din as well, or null

  std::int64_t teams() const { return ceil_divide(rows, chunk); }

  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    std::int64_t const last = (index + 1) * chunk < rows ? (index + 1) * chunk : rows;
    Part part{index * chunk, last, columns, std::int64_t{team.rank()} * width};
    Elements g;
    if (part.column < columns) g.read(gamma.data + part.column);
    float dgamma[width] = {};
    int half = 0;  // half of the scratch: some threads still read the other
    for (; part.first < last; part.first += norm_rows, half = warp_sums - half)
      some_rows(team, team.scratch() + half, part, g, dgamma);
    if (part.column < columns) write_floats(parts + index * columns + part.column, dgamma);
  }

  template <class Team>
  TESSERA_FUNCTION void some_rows(Team const& team, float* scratch, Part const& part,
                                  Elements const& g, float (&dgamma)[width]) const {
    Elements x[norm_rows], dy[norm_rows], before[norm_rows];
    part.read(x, in);
    part.read(dy, dout);
    if (accumulate) part.read(before, din);
    float scale[norm_rows], sums[norm_rows];
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r) {
      sums[r] = 0.0f;
      if (!part.has(r)) continue;
      scale[r] = rstd[part.first + r];
      TESSERA_UNROLL
      for (int i = 0; i < width; ++i)
        sums[r] += dy[r].get(i) * (gamma.offset + g.get(i)) * (x[r].get(i) * scale[r]);
    }
    sum_over_team<Threads>(team, scratch, sums);
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r) {
      if (!part.has(r)) continue;
      float const mean = sums[r] / static_cast<float>(columns);
      Elements dx;
      TESSERA_UNROLL
      for (int i = 0; i < width; ++i) {
        float const d = dy[r].get(i), normal = x[r].get(i) * scale[r];
        float const base = accumulate ? before[r].get(i) : 0.0f;
        dx.set(i, base + scale[r] * (d * (gamma.offset + g.get(i)) - normal * mean));
        dgamma[i] += d * normal;
      }
      dx.write(din + part.at(r));
      if (copy) write_converted<width>(copy + part.at(r), dx);
    }
  }
};

}  // namespace tessera::kernels::detail
