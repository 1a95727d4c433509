#pragma once
/// What Adafactor's kernels share: the runs of a launch and their pieces; and its update with the
/// squares of it. A piece is what a team gets at a time: the elements of a run in one row, or up to
/// column_piece elements of a parameter with a single column.

#include <cmath>
#include <cstring>
#include <type_traits>

#include "launch/interleaved_sums.hpp"
#include "launch/launch.hpp"
#include "launch/pack.hpp"
#include "launch/prefetch.hpp"
#include "optimizer/optimizer_rule.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::optim::detail {

using namespace kernels::detail;
using kernels::GradientControl;

/// Sums over the gradients of a parameter: squares of its weights, a free place, then the squared
/// gradients of each row and of each column.
constexpr std::int64_t adafactor_sum_count(std::int64_t rows, std::int64_t columns) {
  return 2 + rows + columns;
}

/// A parameter of rows x columns. One with a single column has no column means: its row means are
/// those of its elements.
struct AdafactorParameter {
  std::int64_t rows = 0, columns = 0;
  float* row_means = nullptr;       ///< [rows], of the squared gradients, updated
  float* column_means = nullptr;    ///< [columns], likewise
  double* sums = nullptr;           ///< adafactor_sum_count()
  double* update_square = nullptr;  ///< sum of the squares of the update
};

inline constexpr std::int64_t column_piece = 1024;
/// Rows that share a partial sum of a column.
inline constexpr std::int64_t tile_rows = 128;

struct AdafactorCoefficients {
  float gradient_factor;
  float beta1, one_minus_beta1;
  float epsilon_gradient;
  double epsilon_scale, clip_threshold;
  bool scale_parameter;
};

/// A run in the form that a launch carries by value.
struct AdafactorPlace {
  AdafactorParameter parameter;
  std::int64_t offset, numel;
  float *master, *exp_avg;
  void const* gradient;
  void* weights_out;
  float learning_rate, weight_decay;
  std::int64_t first_tile;       ///< first item of this run, in the launch
  std::int64_t column_partials;  ///< where those of columns begin among the run's partial sums

  KOKKOS_FUNCTION std::int64_t width() const {
    return parameter.columns > 1 ? parameter.columns : column_piece;
  }
  KOKKOS_FUNCTION std::int64_t pieces() const {
    return (offset + numel - 1) / width() - offset / width() + 1;
  }
  KOKKOS_FUNCTION std::int64_t first_row() const { return offset / parameter.columns; }
  KOKKOS_FUNCTION std::int64_t end_row() const {
    return (offset + numel - 1) / parameter.columns + 1;
  }
  KOKKOS_FUNCTION std::int64_t tiles() const {
    return parameter.columns > 1 ? ceil_divide(end_row() - first_row(), tile_rows) : 0;
  }
};

/// The runs of a launch.
struct AdafactorBatch {
  static constexpr int max_runs =
      28;  ///< keeps the functor below the 4 KiB of a device kernel's parameters
  AdafactorCoefficients coefficients;
  GradientControl const* control;
  double* partial;
  PrefetchDistance ahead;
  int runs;
  AdafactorPlace run[max_runs];

  KOKKOS_FUNCTION AdafactorPlace const& run_of(std::int64_t item) const {
    return run_with(run, runs, item);
  }
  KOKKOS_FUNCTION float gradient_factor() const {
    return control ? static_cast<float>(control->gradient_factor) : 1.0f;
  }
  KOKKOS_FUNCTION bool skips() const { return control && control->skip != 0; }
};

/// Elements [begin, begin + count) of the parameter, all in a row or all in a column.
struct AdafactorPiece {
  std::int64_t begin, count;

  KOKKOS_FUNCTION AdafactorPiece(AdafactorPlace const& r, std::int64_t index) {
    std::int64_t const width = r.width(), at = (r.offset / width + index) * width;
    begin = at > r.offset ? at : r.offset;
    std::int64_t const end = at + width < r.offset + r.numel ? at + width : r.offset + r.numel;
    count = end - begin;
  }
};

/// Factors of rows or columns in the place of their sums: fp32 in the first half of that memory, so
/// that updates read half the bytes and convert nothing.
struct AdafactorFactors {
  double const* place;

  KOKKOS_FUNCTION float operator[](std::int64_t i) const {
    float factor;
    std::memcpy(&factor, reinterpret_cast<char const*>(place) + 4 * i, sizeof factor);
    return factor;
  }
  static KOKKOS_FUNCTION void set(double* place, std::int64_t i, float factor) {
    std::memcpy(reinterpret_cast<char*>(place) + 4 * i, &factor, sizeof factor);
  }
};

/// Sums of a team's thread: chunks are multiples of them.
template <class Team>
inline constexpr int adafactor_lanes = Team::chunk < 16 ? Team::chunk : 16;

/// body(first, count) for the elements of a chunk, as many as are asked for ahead at a time.
template <class Body>
KOKKOS_FUNCTION void for_prefetched(int count, Body const& body) {
  for (int from = 0; from < count; from += prefetched)
    body(from, count - from < prefetched ? count - from : prefetched);
}

/// for_chunks(), but a single thread gets all elements in one call.
template <class Team, class Body>
KOKKOS_FUNCTION void for_long_chunks(Team const& team, std::int64_t count, Body const& body) {
  if constexpr (std::is_same_v<Team, SingleThread>)
    body(std::int64_t{0}, count);
  else
    for_chunks(team, count, body);
}

/// u of the elements of a piece, before it is clipped.
template <class G>
struct AdafactorDirection {
  G const* g;
  AdafactorFactors rows, columns;
  std::int64_t row, column;  ///< row and column of the piece's first element
  float factor;
  bool is_column;

  KOKKOS_FUNCTION AdafactorDirection(AdafactorBatch const& batch, AdafactorPlace const& r,
                                     AdafactorPiece const& piece)
      : g(static_cast<G const*>(r.gradient) + (piece.begin - r.offset)),
        rows{r.parameter.sums + 2},
        columns{r.parameter.sums + 2 + r.parameter.rows},
        row(piece.begin / r.parameter.columns),
        column(piece.begin % r.parameter.columns),
        factor(batch.gradient_factor()),
        is_column(r.parameter.columns == 1) {}

  /// u[0, count) of the elements from @p at on.
  KOKKOS_FUNCTION void compute(float* __restrict u, std::int64_t at, int count) const {
    G const* const __restrict gradient = g + at;
    float const f = factor;
    if (is_column) {
      for (int i = 0; i < count; ++i) u[i] = rows[row + at + i] * (load(gradient[i]) * f);
    } else {
      float const of_row = rows[row];
      for (int i = 0; i < count; ++i)
        u[i] = of_row * columns[column + at + i] * (load(gradient[i]) * f);
    }
  }
};

/// partial[item] = squares of the update of a piece.
template <class G>
struct AdafactorUpdateSquares {
  AdafactorBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t item) const {
    AdafactorPlace const& r = batch.run_of(item);
    AdafactorPiece const piece(r, item - r.first_tile);
    AdafactorDirection<G> const direction(batch, r, piece);
    InterleavedSums<adafactor_lanes<Team>> squares;
    constexpr int block = prefetched < Team::chunk ? prefetched : Team::chunk;
    for_long_chunks(team, piece.count, [&](std::int64_t first, std::int64_t n) {
      squares.template add_blocks<block>(
          n,
          [&](std::int64_t from, int part, float* u) {
            if (batch.ahead.any()) prefetch<prefetched>(direction.g + first + from, batch.ahead);
            direction.compute(u, first + from, part);
          },
          square);
    });
    double const sum = team.sum(squares.total());
    if (team.rank() == 0) batch.partial[item] = sum;
  }
};

/// The update of a piece.
template <class G, class W>
struct AdafactorUpdate {
  AdafactorBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t item) const {
    if (batch.skips()) return;
    AdafactorPlace const& r = batch.run_of(item);
    AdafactorPiece const piece(r, item - r.first_tile);
    AdafactorDirection<G> const direction(batch, r, piece);
    auto const& c = batch.coefficients;
    double const numel = static_cast<double>(r.parameter.rows * r.parameter.columns);
    double const rms = std::sqrt(*r.parameter.update_square / numel) / c.clip_threshold;
    float const clip = rms > 1.0 ? static_cast<float>(rms) : 1.0f;
    double scale = 1.0;
    if (c.scale_parameter) {
      scale = std::sqrt(r.parameter.sums[0] / numel);
      if (scale < c.epsilon_scale) scale = c.epsilon_scale;
    }
    Values const values{clip, static_cast<float>(r.learning_rate * scale),
                        static_cast<float>(1.0 - r.learning_rate * scale * r.weight_decay), c.beta1,
                        c.one_minus_beta1};
    std::int64_t const in_run = piece.begin - r.offset;
    float *const p = r.master + in_run, *const m = r.exp_avg ? r.exp_avg + in_run : nullptr;
    W* const w = r.weights_out ? static_cast<W*>(r.weights_out) + in_run : nullptr;
    for_chunks(team, piece.count, [&](std::int64_t first, int n) {
      for_prefetched(n, [&](int from, int part) {
        std::int64_t const at = first + from;
        if (batch.ahead.any()) {
          prefetch<prefetched>(direction.g + at, batch.ahead);
          prefetch<prefetched>(p + at, batch.ahead);
          if (m) prefetch<prefetched>(m + at, batch.ahead);
          if (w) prefetch<prefetched>(w + at, batch.ahead);
        }
        float u[prefetched < Team::chunk ? prefetched : Team::chunk];
        direction.compute(u, at, part);
        apply(values, part, u, p + at, m ? m + at : nullptr, w ? w + at : nullptr);
      });
    });
  }

 private:
  struct Values {
    float clip, rate, keep, beta1, one_minus_beta1;
  };
  /// One loop per array that may be missing: they vectorize.
  static KOKKOS_FUNCTION void apply(Values const v, int count, float* __restrict u,
                                    float* __restrict p, float* __restrict m, W* __restrict w) {
    for (int i = 0; i < count; ++i) u[i] = u[i] / v.clip * v.rate;
    if (m)
      for (int i = 0; i < count; ++i)
        u[i] = m[i] = multiply_add(v.one_minus_beta1, u[i], m[i] * v.beta1);
    for (int i = 0; i < count; ++i) p[i] = multiply_add(p[i], v.keep, -u[i]);
    if (w)
      for (int i = 0; i < count; ++i) store(w[i], p[i]);
  }
};

}  // namespace tessera::optim::detail
