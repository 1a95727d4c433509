#pragma once
/// The LAMB update of one element, and the squares of a tile.

#include <cmath>

#include "launch/interleaved_sums.hpp"
#include "optimizer/segment_update.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

struct LambRule {
  struct Coefficients {
    float gradient_factor;
    float one_minus_beta1;
    float beta2, one_minus_beta2;
    float epsilon, epsilon_inside;
    double min_coeff, max_coeff;
  };
  struct Rates {
    float l2;         ///< weight_decay
    float step_size;  ///< lr * rate_factor; times r when resolved
    double const* sums;
  };
  static constexpr int states = 2;  ///< exp_avg, exp_avg_sq

  /// Rates of a run, with the parameter's norms.
  static KOKKOS_INLINE_FUNCTION Rates resolved(Coefficients const& c, Rates r) {
    double const weights = std::sqrt(r.sums[0]), update = std::sqrt(r.sums[1]);
    if (weights == 0.0 || update == 0.0) return r;
    double ratio = weights / update;
    if (ratio > c.max_coeff) ratio = c.max_coeff;
    if (ratio < c.min_coeff) ratio = c.min_coeff;
    r.step_size = static_cast<float>(r.step_size * ratio);
    return r;
  }

  /// Updates m and v and returns u.
  static KOKKOS_INLINE_FUNCTION float direction(Coefficients const& c, float l2, float g, float p,
                                                float& m, float& v) {
    g = g * c.gradient_factor;
    m = multiply_add(c.one_minus_beta1, g - m, m);
    v = multiply_add(c.one_minus_beta2 * g, g, v * c.beta2);
    return multiply_add(l2, p, m / (std::sqrt(v + c.epsilon_inside) + c.epsilon));
  }

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& m, float& v) {
    float const u = direction(c, r.l2, g, p, m, v);
    p = multiply_add(-r.step_size, u, p);
  }
};

/// A segment whose norms a launch computes.
struct LambNormRun {
  float const *p, *m, *v;
  void const* gradient;
  double* sums;
  std::int64_t numel;
  std::int64_t first_tile;  ///< first tile of this run, in the launch
  float l2;
};

/// The runs of a launch, and where their partial sums are.
struct LambNormBatch {
  static constexpr int max_runs =
      40;  ///< keeps the functor below the 4 KiB of a device kernel's parameters
  static constexpr std::int64_t tile = 16384;  ///< elements of one partial sum
  LambRule::Coefficients coefficients;
  GradientControl const* control;  ///< null: the coefficients hold the factor
  double* partial;                 ///< lamb_sums per tile
  int runs;
  LambNormRun run[max_runs];

  static std::int64_t tiles_of(std::int64_t numel) { return ceil_divide(numel, tile); }
};

/// partial[2 * index] = squares of the weights of a tile, then squares of its update.
template <class G>
struct LambTileNorms {
  LambNormBatch batch;
  PrefetchDistance ahead;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    int low = 0, high = batch.runs;  // the last run that starts at or before this tile
    while (high - low > 1) {
      int const middle = (low + high) / 2;
      (batch.run[middle].first_tile <= index ? low : high) = middle;
    }
    LambNormRun const& r = batch.run[low];
    std::int64_t const begin = (index - r.first_tile) * LambNormBatch::tile, rest = r.numel - begin;
    std::int64_t const count = rest < LambNormBatch::tile ? rest : LambNormBatch::tile;
    LambRule::Coefficients c = batch.coefficients;
    if (batch.control) c.gradient_factor = static_cast<float>(batch.control->gradient_factor);
    constexpr int width = Team::chunk < 16 ? Team::chunk : 16;
    InterleavedSums<width> weights, update;
    for_chunks(team, count, [&](std::int64_t first, int n) {
      for (int from = 0; from < n; from += prefetched) {
        int const part = n - from < prefetched ? n - from : prefetched;
        std::int64_t const at = begin + first + from;
        if (ahead.any()) {
          prefetch<prefetched>(r.p + at, ahead);
          prefetch<prefetched>(r.m + at, ahead);
          prefetch<prefetched>(r.v + at, ahead);
          prefetch<prefetched>(static_cast<G const*>(r.gradient) + at, ahead);
        }
        float u[prefetched < Team::chunk ? prefetched : Team::chunk];
        directions(u, c, r, at, part);
        weights.add(part, [p = r.p + at](int i) { return square(p[i]); });
        update.add(part, [&u](int i) { return square(u[i]); });
      }
    });
    double const sums[] = {team.sum(weights.total()), team.sum(update.total())};
    if (team.rank() != 0) return;
    for (int k = 0; k < lamb_sums; ++k) batch.partial[lamb_sums * index + k] = sums[k];
  }

 private:
  static KOKKOS_FUNCTION void directions(float* __restrict u, LambRule::Coefficients const& c,
                                         LambNormRun const& r, std::int64_t at, int count) {
    G const* const g = static_cast<G const*>(r.gradient) + at;
    float const *const p = r.p + at, *const m = r.m + at, *const v = r.v + at;
    for (int i = 0; i < count; ++i) {
      float first = m[i], second = v[i];
      u[i] = LambRule::direction(c, r.l2, load(g[i]), p[i], first, second);
    }
  }
};

/// The sums of run @p index: its partial sums in order.
struct LambTotals {
  LambNormBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    LambNormRun const& r = batch.run[index];
    std::int64_t const tiles = ceil_divide(r.numel, LambNormBatch::tile);
    double sums[lamb_sums] = {};
    for (std::int64_t t = team.rank(); t < tiles; t += team.size())
      for (int k = 0; k < lamb_sums; ++k)
        sums[k] += batch.partial[lamb_sums * (r.first_tile + t) + k];
    for (int k = 0; k < lamb_sums; ++k) {
      double const sum = team.sum(sums[k]);
      if (team.rank() == 0) r.sums[k] = sum;
    }
  }
};

}  // namespace tessera::kernels::detail
