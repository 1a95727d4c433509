#pragma once
/// Adafactor's sums and means over rows and columns, and the factors that the means give.

#include "optimizers/adafactor_rule.hpp"

namespace tessera::optim::detail {

/// The squared gradient of an element, with epsilon.
template <class G>
struct AdafactorSquare {
  float factor, epsilon;

  explicit KOKKOS_FUNCTION AdafactorSquare(AdafactorBatch const& batch)
      : factor(batch.gradient_factor()), epsilon(batch.coefficients.epsilon_gradient) {}
  KOKKOS_FUNCTION float operator()(G const& element) const {
    float const g = load(element) * factor;
    return g * g + epsilon;
  }
};

/// Row sums of the squared gradients, and partial[item] = squares of the piece's weights.
template <class G>
struct AdafactorRowSums {
  AdafactorBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t item) const {
    AdafactorPlace const& r = batch.run_of(item);
    sum_piece(batch, r, AdafactorPiece(r, item - r.first_tile), team, item);
  }

  template <class Team>
  static KOKKOS_FUNCTION void sum_piece(AdafactorBatch const& batch, AdafactorPlace const& r,
                                        AdafactorPiece const& piece, Team const& team,
                                        std::int64_t item) {
    G const* const g = static_cast<G const*>(r.gradient) + (piece.begin - r.offset);
    float const* const p = r.master + (piece.begin - r.offset);
    AdafactorSquare<G> const square_of(batch);
    double* const rows = r.parameter.sums + 2;
    bool const is_column = r.parameter.columns == 1;
    InterleavedSums<adafactor_lanes<Team>> squares, weights;
    for_chunks(team, piece.count, [&](std::int64_t first, int n) {
      for_prefetched(n, [&](int from, int part) {
        std::int64_t const at = first + from;
        if (batch.ahead.any()) {
          prefetch<prefetched>(g + at, batch.ahead);
          prefetch<prefetched>(p + at, batch.ahead);
        }
        if (is_column)
          for (int i = 0; i < part; ++i) rows[piece.begin + at + i] = square_of(g[at + i]);
        else
          squares.add(part, [&](int i) { return static_cast<double>(square_of(g[at + i])); });
        weights.add(part, [&](int i) { return square(p[at + i]); });
      });
    });
    double const row = team.sum(squares.total()), weight = team.sum(weights.total());
    if (team.rank() != 0) return;
    if (!is_column) rows[piece.begin / r.parameter.columns] = row;
    batch.partial[item] = weight;
  }
};

/// out(run) = its partial sums, one per item, in order.
template <bool of_weights>
struct AdafactorTotals {
  AdafactorBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    AdafactorPlace const& r = batch.run[index];
    double sum = 0.0;
    for (std::int64_t k = team.rank(); k < r.pieces(); k += team.size())
      sum += batch.partial[r.first_tile + k];
    sum = team.sum(sum);
    if (team.rank() == 0) (of_weights ? r.parameter.sums[0] : *r.parameter.update_square) = sum;
  }
};

/// Where the column sums of the rows of an item begin.
struct AdafactorColumnPartial {
  KOKKOS_FUNCTION static double* of(AdafactorBatch const& batch, AdafactorPlace const& r,
                                    std::int64_t tile) {
    return batch.partial + r.first_tile + r.column_partials + tile * r.parameter.columns;
  }
};

/// Runs whose items are tiles, while first_tile of a run counts doubles of the partial sums.
struct AdafactorTileBatch : AdafactorBatch {
  std::int64_t tiles_before[max_runs];

  KOKKOS_FUNCTION int index_of(std::int64_t item) const {
    int low = 0, high = runs;
    while (high - low > 1) {
      int const middle = (low + high) / 2;
      (tiles_before[middle] <= item ? low : high) = middle;
    }
    return low;
  }
};

/// Partial sums of the columns over tile_rows rows.
template <class G>
struct AdafactorColumnTiles {
  AdafactorTileBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t item) const {
    int const run = batch.index_of(item);
    AdafactorPlace const& r = batch.run[run];
    std::int64_t const tile = item - batch.tiles_before[run], columns = r.parameter.columns;
    std::int64_t const begin = r.first_row() + tile * tile_rows,
                       end = begin + tile_rows < r.end_row() ? begin + tile_rows : r.end_row();
    double* const out = AdafactorColumnPartial::of(batch, r, tile);
    AdafactorSquare<G> const square_of(batch);
    for_chunks(team, columns, [&](std::int64_t first, int n) {
      double sums[Team::chunk] = {};
      for (std::int64_t row = begin; row < end; ++row) {
        // Offset of the row's first element in the run
        std::int64_t const at = row * columns - r.offset;
        std::int64_t const from = -at > first ? -at : first,
                           to = r.numel - at < first + n ? r.numel - at : first + n;
        G const* const g = static_cast<G const*>(r.gradient) + at;
        for (std::int64_t c = from; c < to; ++c) sums[c - first] += square_of(g[c]);
      }
      for (int i = 0; i < n; ++i) out[first + i] = sums[i];
    });
  }
};

/// Both sums, and partial[] = squares of the weights of each row, in one sweep over a tile: what a
/// host thread reads is contiguous, and sums of columns are in its caches. The sums have the order,
/// and the bits, of AdafactorRowSums and AdafactorColumnTiles. An item of a single column is a
/// piece.
template <class G>
struct AdafactorTileSums {
  AdafactorTileBatch batch;

  /// Launches are compiled for devices too; there it is never called.
  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t item) const {
    if constexpr (std::is_same_v<Team, SingleThread>) sum_tile(team, item);
  }

 private:
  KOKKOS_FUNCTION void sum_tile(SingleThread const& thread, std::int64_t item) const {
    int const run = batch.index_of(item);
    AdafactorPlace const& r = batch.run[run];
    std::int64_t const tile = item - batch.tiles_before[run], columns = r.parameter.columns;
    if (columns == 1)
      return AdafactorRowSums<G>::sum_piece(batch, r, AdafactorPiece(r, tile), thread,
                                            r.first_tile + tile);
    std::int64_t const begin = r.first_row() + tile * tile_rows,
                       end = begin + tile_rows < r.end_row() ? begin + tile_rows : r.end_row();
    double* const of_columns = AdafactorColumnPartial::of(batch, r, tile);
    for (std::int64_t c = 0; c < columns; ++c) of_columns[c] = 0.0;
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t const first = row * columns > r.offset ? row * columns : r.offset,
                         last = r.offset + r.numel, next = (row + 1) * columns;
      double* const weights = batch.partial + r.first_tile + (row - r.first_row());
      r.parameter.sums[2 + row] = sum_row(r, first - r.offset, (next < last ? next : last) - first,
                                          of_columns + (first - row * columns), *weights);
    }
  }

  /// @param at,count the row's elements in the run
  /// @return sum of their squared gradients
  KOKKOS_FUNCTION double sum_row(AdafactorPlace const& r, std::int64_t at, std::int64_t count,
                                 double* of_columns, double& of_weights) const {
    G const* const g = static_cast<G const*>(r.gradient) + at;
    float const* const p = r.master + at;
    AdafactorSquare<G> const square_of(batch);
    InterleavedSums<adafactor_lanes<SingleThread>> squares, weights;
    for (std::int64_t i = 0; i < count; i += prefetched) {
      int const part = static_cast<int>(count - i < prefetched ? count - i : prefetched);
      if (batch.ahead.any()) {
        prefetch<prefetched>(g + i, batch.ahead);
        prefetch<prefetched>(p + i, batch.ahead);
      }
      squares.add(part, [&](int j) {
        double const value = square_of(g[i + j]);
        of_columns[i + j] += value;
        return value;
      });
      weights.add(part, [&](int j) { return square(p[i + j]); });
    }
    of_weights = weights.total();
    return squares.total();
  }
};

/// The column sums of run @p index: its tiles in order.
struct AdafactorColumnTotals {
  AdafactorBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    AdafactorPlace const& r = batch.run[index];
    std::int64_t const tiles = r.tiles();
    if (tiles == 0) return;
    double* const out = r.parameter.sums + 2 + r.parameter.rows;
    for_chunks(team, r.parameter.columns, [&](std::int64_t first, int n) {
      double sums[Team::chunk] = {};
      for (std::int64_t t = 0; t < tiles; ++t)
        for (int i = 0; i < n; ++i) sums[i] += AdafactorColumnPartial::of(batch, r, t)[first + i];
      for (int i = 0; i < n; ++i) out[first + i] = sums[i];
    });
  }
};

/// The parameters of a launch of AdafactorMeans.
struct AdafactorMeansBatch {
  static constexpr int max_parameters = 64;
  GradientControl const* control;
  double beta2;
  int count;
  AdafactorParameter parameter[max_parameters];
};

/// New means; the factors 1 / sqrt(r_i / mean(r)) and 1 / sqrt(c_j) replace the sums
/// (AdafactorFactors).
struct AdafactorMeans {
  AdafactorMeansBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    if (batch.control && batch.control->skip != 0) return;
    AdafactorParameter const& p = batch.parameter[index];
    double* const rows = p.sums + 2;
    double* const columns = rows + p.rows;
    bool const is_column = p.columns == 1;
    double const sum =
        team.sum(advance(team, p.row_means, rows, p.rows, static_cast<double>(p.columns)));
    float const mean = static_cast<float>(sum / static_cast<double>(p.rows));
    for_chunks(team, p.rows, [&](std::int64_t first, int n) {
      for (std::int64_t i = first; i < first + n; ++i)
        AdafactorFactors::set(rows, i,
                              1.0f / std::sqrt(is_column ? p.row_means[i] : p.row_means[i] / mean));
    });
    if (is_column) return;
    // summed over the team although nobody needs the sum: factors overwrite what others read
    (void)team.sum(advance(team, p.column_means, columns, p.columns, static_cast<double>(p.rows)));
    for_chunks(team, p.columns, [&](std::int64_t first, int n) {
      for (std::int64_t i = first; i < first + n; ++i)
        AdafactorFactors::set(columns, i, 1.0f / std::sqrt(p.column_means[i]));
    });
  }

 private:
  /// @return this thread's share of the sum of the new means
  template <class Team>
  KOKKOS_FUNCTION double advance(Team const& team, float* means, double const* sums,
                                 std::int64_t count, double divisor) const {
    float const beta2 = static_cast<float>(batch.beta2),
                one_minus_beta2 = static_cast<float>(1.0 - batch.beta2);
    double total = 0.0;
    for_chunks(team, count, [&](std::int64_t first, int n) {
      for (std::int64_t i = first; i < first + n; ++i) {
        means[i] =
            multiply_add(one_minus_beta2, static_cast<float>(sums[i] / divisor), means[i] * beta2);
        total += means[i];
      }
    });
    return total;
  }
};

}  // namespace tessera::optim::detail
