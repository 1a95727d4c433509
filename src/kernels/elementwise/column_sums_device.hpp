#pragma once
/// The device's traversal of column sums: teams of threads, tiles of rows x columns. The host's is
/// column_sums.cpp.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "launch/pack.hpp"
#include "launch/team_sums.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

/// Threads per team for a tile of the matrix, and for a strip of partial sums.
inline constexpr int column_tile_threads = 256, column_parts_threads = 512;

/// Rows per chunk, a function of the shape, so that results do not depend on the device or on
/// timing: about 1056 tiles of 32 x N columns (eight per multiprocessor of an H200) of at least 32
/// rows. The partial sums, 4 bytes per column and chunk, are then at most a sixteenth of 16-bit
/// elements.
template <int N>
std::int64_t rows_of_column_tile(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t tiles = 1056, step = 32, width = warp_size * N;
  std::int64_t const strips = ceil_divide(columns, width);
  return std::max(step, round_up(rows * strips / tiles, step));
}

/// At least one chunk, which gives the sum of no rows.
TESSERA_FUNCTION inline std::int64_t row_chunks(std::int64_t rows, std::int64_t chunk) {
  return rows > chunk ? ceil_divide(rows, chunk) : 1;
}

/// Where the sums of a row chunk go: columns before `split` to `first`, the others to `second`.
template <class Out>
struct ColumnTarget {
  Out* first = nullptr;
  Out* second = nullptr;
  std::int64_t split = std::numeric_limits<std::int64_t>::max();
  bool accumulate = false;

  TESSERA_FUNCTION Out& at(std::int64_t column) const {
    return column < split ? first[column] : second[column - split];
  }
  TESSERA_FUNCTION void add(std::int64_t column, float sum) const {
    Out& out = at(column);
    store(out, accumulate ? load(out) + sum : sum);
  }
};

/// A team sums a tile. The threads of a warp have N neighboring columns each; a warp sums every
/// groups-th row, four rows in flight. Order of a column: a warp's rows in fours, ((a + b) + (c +
/// d)), then one by one; then the warps in order.
template <class Out, class In, int N, int Threads>
struct ColumnTile {
  static constexpr int lanes = Threads < warp_size ? 1 : warp_size, groups = Threads / lanes,
                       width = lanes * N;
  static constexpr std::size_t scratch_floats = groups * width;

  ColumnTarget<Out> to;  ///< row chunk i: from column i * columns
  In const* in;
  std::int64_t rows, columns, chunk;  ///< rows per chunk

  TESSERA_FUNCTION std::int64_t strips() const { return ceil_divide(columns, width); }
  std::int64_t teams() const { return row_chunks(rows, chunk) * strips(); }

  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    std::int64_t const strip = index % strips(), row_chunk = index / strips();
    int const lane = team.rank() % lanes, group = team.rank() / lanes;
    std::int64_t const column = strip * width + lane * N, first = row_chunk * chunk;
    std::int64_t const last = first + chunk < rows ? first + chunk : rows;
    float sums[N];
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) sums[i] = 0.0f;
    if (column < columns) add_rows(sums, first + group, last, column);
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) team.scratch()[group * width + lane * N + i] = sums[i];
    team.barrier();
    for (int c = team.rank(); c < width; c += Threads) {
      if (strip * width + c >= columns) break;
      float total = team.scratch()[c];
      for (int g = 1; g < groups; ++g) total += team.scratch()[g * width + c];
      to.add(row_chunk * columns + strip * width + c, total);
    }
  }

  TESSERA_FUNCTION void add_rows(float (&sums)[N], std::int64_t row, std::int64_t last,
                                 std::int64_t column) const {
    using Elements = RowPack<In, N>;
    std::int64_t const step = groups * columns;
    In const* at = in + row * columns + column;
    for (; row + 3 * groups < last; row += 4 * groups, at += 4 * step) {
      Elements a, b, c, d;
      a.read(at), b.read(at + step), c.read(at + 2 * step), d.read(at + 3 * step);
      TESSERA_UNROLL
      for (int i = 0; i < N; ++i) sums[i] += (a.get(i) + b.get(i)) + (c.get(i) + d.get(i));
    }
    for (; row < last; row += groups, at += step) {
      Elements a;
      a.read(at);
      TESSERA_UNROLL
      for (int i = 0; i < N; ++i) sums[i] += a.get(i);
    }
  }
};

/// Partial sums [chunks, columns] fp32 of row chunks.
struct ColumnPartials {
  float const* data;
  std::int64_t chunks, columns;
};

/// Sums partial sums into their target: one team per 32 columns processes all chunks.
template <class Out, int Threads>
using ColumnParts = ColumnTile<Out, float, 1, Threads>;

template <class Out, int Threads>
ColumnParts<Out, Threads> sum_of_column_parts(ColumnTarget<Out> const& to,
                                              ColumnPartials const& parts) {
  return {to, parts.data, parts.chunks, parts.columns, parts.chunks};
}

}  // namespace tessera::kernels::detail
