#pragma once
/// Adafactor's update, and the squares of it.

#include "optimizer/adafactor_rule.hpp"

namespace tessera::kernels::detail {

/// u of the elements of a piece, before it is clipped.
template <class G>
struct AdafactorDirection {
  G const* g;
  AdafactorFactors rows, columns;
  std::int64_t row, column;  ///< of the piece's first element
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
    AdafactorPiece const piece(r, item - r.first_item);
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
    AdafactorPiece const piece(r, item - r.first_item);
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

}  // namespace tessera::kernels::detail
