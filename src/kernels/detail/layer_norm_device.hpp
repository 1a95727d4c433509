#pragma once
/// The device's traversal of layer norm: a team keeps its rows in registers. Thread i of a team has
/// columns i N .. i N + N - 1 (16 bytes) of several rows, so every input is read once. The host's
/// traversal is layer_norm.cpp.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "detail/dropout.hpp"
#include "detail/row_packs.hpp"
#include "detail/team_sums.hpp"

namespace tessera::kernels::detail {

/// Rows that a team processes at the same time.
inline constexpr int norm_rows = 4;

/// The part of `norm_rows` rows that one thread holds.
template <class T>
struct NormPart {
  static constexpr int width = pack_of<T>;
  using Elements = RowPack<T, width>;

  std::int64_t first, rows, columns, column;

  TESSERA_FUNCTION bool has(int r) const { return column < columns && first + r < rows; }
  TESSERA_FUNCTION std::int64_t at(int r) const { return (first + r) * columns + column; }
  TESSERA_FUNCTION void read(Elements (&out)[norm_rows], T const* from) const {
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r)
      if (has(r)) out[r].read(from + at(r));
  }
};

/// Mean first, then the sum of squared deviations: no cancellation.
template <class T, int Threads>
struct TeamNormalize {
  using Part = NormPart<T>;
  using Elements = typename Part::Elements;
  static constexpr int warp_sums = team_sum_floats<norm_rows, Threads>;
  static constexpr std::size_t scratch_floats = 2 * warp_sums;

  T* out;
  float *mean, *rstd;
  T const *in, *gamma, *beta;
  std::int64_t rows, columns;
  float epsilon;

  std::int64_t teams() const { return (rows + norm_rows - 1) / norm_rows; }

  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    Part const part{index * norm_rows, rows, columns, std::int64_t{team.rank()} * Part::width};
    Elements x[norm_rows];
    part.read(x, in);
    normalize(team, part, x);
  }

  template <class Team>
  TESSERA_FUNCTION void normalize(Team const& team, Part const& part,
                                  Elements const (&x)[norm_rows]) const {
    float average[norm_rows], inverse[norm_rows];
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r) {
      average[r] = 0.0f;
      if (!part.has(r)) continue;
      TESSERA_UNROLL
      for (int i = 0; i < Part::width; ++i) average[r] += x[r].get(i);
    }
    sum_over_team<Threads>(team, team.scratch(), average);
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r) {
      average[r] /= static_cast<float>(columns);
      inverse[r] = 0.0f;
      if (!part.has(r)) continue;
      TESSERA_UNROLL
      for (int i = 0; i < Part::width; ++i)
        inverse[r] += (x[r].get(i) - average[r]) * (x[r].get(i) - average[r]);
    }
    sum_over_team<Threads>(team, team.scratch() + warp_sums, inverse);
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r) {
      inverse[r] = 1.0f / std::sqrt(inverse[r] / static_cast<float>(columns) + epsilon);
      if (team.rank() != r || part.first + r >= rows) continue;
      mean[part.first + r] = average[r];
      rstd[part.first + r] = inverse[r];
    }
    if (part.column >= columns) return;
    Elements g, b;
    g.read(gamma + part.column);
    b.read(beta + part.column);
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r) {
      if (!part.has(r)) continue;
      Elements y;
      TESSERA_UNROLL
      for (int i = 0; i < Part::width; ++i)
        y.set(i, (x[r].get(i) - average[r]) * inverse[r] * g.get(i) + b.get(i));
      y.write(out + part.at(r));
    }
  }
};

/// sum = residual + dropout(branch), then its norm: of `sum` as rounded to T, which the backward
/// pass reads.
template <class T, int Threads>
struct TeamResidualNormalize {
  using Part = NormPart<T>;
  using Elements = typename Part::Elements;
  static constexpr std::size_t scratch_floats = TeamNormalize<T, Threads>::scratch_floats;

  T* sum;
  T const *residual, *branch;
  DropoutFactors factors;
  TeamNormalize<T, Threads> norm;

  std::int64_t teams() const { return norm.teams(); }

  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    Part const part{index * norm_rows, norm.rows, norm.columns,
                    std::int64_t{team.rank()} * Part::width};
    Elements x[norm_rows], b[norm_rows];
    part.read(x, residual);
    part.read(b, branch);
    TESSERA_UNROLL
    for (int r = 0; r < norm_rows; ++r) {
      if (!part.has(r)) continue;
      Elements added;
      float factor[Part::width] = {};
      if (factors.active())
        factors.pack(static_cast<std::uint64_t>(part.at(r)), factor);
      else
        TESSERA_UNROLL
      for (int i = 0; i < Part::width; ++i) factor[i] = 1.0f;
      TESSERA_UNROLL
      for (int i = 0; i < Part::width; ++i) added.set(i, x[r].get(i) + b[r].get(i) * factor[i]);
      added.write(sum + part.at(r));
      x[r] = added;
    }
    norm.normalize(team, part, x);
  }
};

/// A chunk of rows per team. With x^ = (x - mean) rstd and h = dout gamma:
///   din (+)= rstd (h - mean(h) - x^ mean(h x^)),   parts[chunk] = { sum dout x^, sum dout } [2, C]
///   over the rows of the chunk in their order.
template <class T, int Threads>
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

  std::int64_t teams() const { return (rows + chunk - 1) / chunk; }

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
    }
  }
};

/// Rows per chunk in the backward pass, a function of the number of rows: at most 512 chunks (an
/// H200 runs 528 teams of 128 threads, four per multiprocessor) of at least 16 rows. The partial
/// sums, 8 bytes per column and chunk, are then at most a twelfth of the bytes read and written.
inline std::int64_t rows_per_norm_chunk(std::int64_t rows) {
  constexpr std::int64_t max_chunks = 512, min_rows = 16;
  std::int64_t const each = std::max(min_rows, (rows + max_chunks - 1) / max_chunks);
  return (each + norm_rows - 1) / norm_rows * norm_rows;
}

/// Threads of the smallest team that has a thread for every 16 bytes of a row; 0 when rows do not
/// divide into such packs or have more than 512.
template <class T>
constexpr int norm_team_size(std::int64_t columns) {
  std::int64_t const packs = columns / pack_of<T>;
  if (columns % pack_of<T> != 0 || packs < 1 || packs > 512) return 0;
  return packs <= 128 ? 128 : packs <= 256 ? 256 : 512;
}
/// Whether a team can keep rows of @p columns elements at these addresses in registers.
template <class T, class... Data>
bool fits_registers(std::int64_t columns, Data const*... data) {
  return norm_team_size<T>(columns) > 0 && in_packs<pack_of<T>>(columns, data...);
}
/// call(threads) with norm_team_size() as a compile-time constant. @return false, and no call, when
/// it is 0.
template <class T, class Call>
bool with_norm_team(std::int64_t columns, Call const& call) {
  switch (norm_team_size<T>(columns)) {
    case 128:
      call(std::integral_constant<int, 128>());
      return true;
    case 256:
      call(std::integral_constant<int, 256>());
      return true;
    case 512:
      call(std::integral_constant<int, 512>());
      return true;
    default:
      return false;
  }
}

}  // namespace tessera::kernels::detail
