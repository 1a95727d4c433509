#pragma once
/// The device's traversal of layer norm: a team keeps its rows in registers. Thread i of a team has
/// columns i N .. i N + N - 1 (16 bytes) of several rows, so every input is read once. The host's
/// traversal is layer_norm.cpp.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "elementwise/dropout.hpp"
#include "launch/pack.hpp"
#include "launch/team_sums.hpp"
#include "tessera/core/rounding.hpp"

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

/// Mean first, then the sum of squared deviations: no cancellation. The result may be narrower than
/// the input.
template <class T, int Threads, class Result = T>
struct TeamNormalize {
  using Part = NormPart<T>;
  using Elements = typename Part::Elements;
  static constexpr int warp_sums = team_sum_floats<norm_rows, Threads>;
  static constexpr std::size_t scratch_floats = 2 * warp_sums;
  static constexpr int resident_threads = 1024;

  Result* out;
  float *mean, *rstd;
  T const *in, *gamma, *beta;
  std::int64_t rows, columns;
  float epsilon;

  std::int64_t teams() const { return ceil_divide(rows, norm_rows); }

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
      RowPack<Result, Part::width> y;
      TESSERA_UNROLL
      for (int i = 0; i < Part::width; ++i)
        y.set(i, (x[r].get(i) - average[r]) * inverse[r] * g.get(i) + b.get(i));
      y.write(out + part.at(r));
    }
  }
};

/// sum = residual + dropout(branch), then its norm: of `sum` as rounded to T, which the backward
/// pass reads.
template <class T, int Threads, class Norm = TeamNormalize<T, Threads>>
struct TeamResidualNormalize {
  using Part = NormPart<T>;
  using Elements = typename Part::Elements;
  static constexpr std::size_t scratch_floats = Norm::scratch_floats;
  static constexpr int resident_threads = 768;

  T* sum;
  T const *residual, *branch;
  DropoutFactors factors;
  Norm norm;

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
