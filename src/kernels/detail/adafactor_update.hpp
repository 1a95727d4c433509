#pragma once
/// Adafactor's update, and the squares of it.

#include "detail/adafactor_rule.hpp"

namespace tessera::kernels::detail {

/// u of the elements of a piece, before it is clipped.
template <class G>
struct AdafactorDirection {
  G const* g;
  double const *rows, *columns;  ///< the factors at the piece's first element
  float factor;
  bool is_column;

  KOKKOS_FUNCTION AdafactorDirection(AdafactorBatch const& batch, AdafactorPlace const& r,
                                     AdafactorPiece const& piece)
      : g(static_cast<G const*>(r.gradient) + (piece.begin - r.offset)),
        rows(r.parameter.sums + 2 + piece.begin / r.parameter.columns),
        columns(r.parameter.sums + 2 + r.parameter.rows + piece.begin % r.parameter.columns),
        factor(batch.gradient_factor()),
        is_column(r.parameter.columns == 1) {}

  KOKKOS_FUNCTION float operator()(std::int64_t at) const {
    float const gi = load(g[at]) * factor;
    if (is_column) return static_cast<float>(rows[at]) * gi;
    return static_cast<float>(rows[0]) * static_cast<float>(columns[at]) * gi;
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
    constexpr int lanes = Team::chunk < 16 ? Team::chunk : 16;
    double squares[lanes] = {};
    for_chunks(team, piece.count, [&](std::int64_t first, int n) {
      for (int i = 0; i < n; i += lanes)
        for (int j = 0; j < lanes && i + j < n; ++j) {
          float const u = direction(first + i + j);
          squares[j] += static_cast<double>(u) * u;
        }
    });
    double const sum = team.sum(total_of<lanes>(squares));
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
    float const rate = static_cast<float>(r.learning_rate * scale);
    float const keep = static_cast<float>(1.0 - r.learning_rate * scale * r.weight_decay);
    std::int64_t const in_run = piece.begin - r.offset;
    float *const p = r.master + in_run, *const m = r.exp_avg ? r.exp_avg + in_run : nullptr;
    W* const w = r.weights_out ? static_cast<W*>(r.weights_out) + in_run : nullptr;
    for_chunks(team, piece.count, [&](std::int64_t first, int n) {
      for (std::int64_t at = first; at < first + n; ++at) {
        float u = direction(at) / clip * rate;
        if (m) u = m[at] = multiply_add(c.one_minus_beta1, u, m[at] * c.beta1);
        p[at] = multiply_add(p[at], keep, -u);
        if (w) store(w[at], p[at]);
      }
    });
  }
};

}  // namespace tessera::kernels::detail
