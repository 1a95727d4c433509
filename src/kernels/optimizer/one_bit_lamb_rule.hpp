#pragma once
/// The element-wise rules of 1-bit LAMB, and its reductions over parameters.

#include <cmath>

#include "optimizer/segment_update.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/kernels/optimizer/lamb.hpp"

namespace tessera::kernels::detail {

struct OneBitLambCoefficients {
  float gradient_factor;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float epsilon, epsilon_inside;

  KOKKOS_INLINE_FUNCTION float denominator(float v) const {
    return std::sqrt(v + epsilon_inside) + epsilon;
  }
};

struct ScaledMomentumRule {
  using Coefficients = OneBitLambCoefficients;
  struct Rates {
    float const* place;
    float scaling;
  };
  static constexpr int states = 2;  ///< exp_avg, worker_error

  static KOKKOS_INLINE_FUNCTION Rates resolved(Coefficients const&, Rates r) {
    r.scaling = *r.place;
    return r;
  }
  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g, float&,
                                             float& m, float& error) {
    g = multiply_add(g, c.gradient_factor, 0.0f);
    error = multiply_add(r.scaling, multiply_add(c.one_minus_beta1, g - m, m), error);
  }
};

struct FreshMomentsRule {
  using Coefficients = OneBitLambCoefficients;
  struct Rates {
    float const* place;
    float inverse_scaling;
  };
  static constexpr int states = 2;  ///< exp_avg, exp_avg_sq_fresh

  static KOKKOS_INLINE_FUNCTION Rates resolved(Coefficients const&, Rates r) {
    r.inverse_scaling = *r.place > 0.0f ? 1.0f / *r.place : 0.0f;
    return r;
  }
  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float x, float&,
                                             float& m, float& fresh) {
    float const next = x * r.inverse_scaling;
    float const g = multiply_add(-c.beta1, m, next) / c.one_minus_beta1;
    fresh = multiply_add(c.one_minus_beta2 * g, g, fresh * c.beta2);
    m = next;
  }
};

struct CopyVarianceRule {
  using Coefficients = OneBitLambCoefficients;
  struct Rates {};
  static constexpr int states = 2;  ///< exp_avg_sq, exp_avg_sq_fresh

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const&, Rates const&, float, float&,
                                             float& v, float& fresh) {
    fresh = v;
  }
};

struct FrozenLambRule {
  using Coefficients = OneBitLambCoefficients;
  struct Rates {
    float const *coefficient, *factor;
    float l2;
    float step_size;  ///< lr; times coefficient and factor when resolved
  };
  static constexpr int states = 2;  ///< exp_avg, exp_avg_sq

  static KOKKOS_INLINE_FUNCTION Rates resolved(Coefficients const&, Rates r) {
    r.step_size *= *r.coefficient * *r.factor;
    return r;
  }
  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float, float& p,
                                             float& m, float& v) {
    p = multiply_add(-r.step_size, multiply_add(r.l2, p, m / c.denominator(v)), p);
  }
};

struct OneBitLambRun {
  float const *p, *m, *v, *fresh;
  OneBitLambScalars scalars;
  std::int64_t numel;
  std::int64_t first_tile;  ///< first tile of this run, in the launch
  float l2;
};

/// The runs of a launch, and where their partial sums are.
struct OneBitLambBatch {
  static constexpr int max_runs = 32;  ///< the functor stays below 4 KiB, as LambNormBatch
  static constexpr std::int64_t tile = 16384;
  static constexpr int sums = 3;
  OneBitLambCoefficients coefficients;
  double factor_min, factor_max, threshold;
  double* partial;  ///< `sums` per tile
  int runs;
  OneBitLambRun run[max_runs];

  static KOKKOS_FUNCTION std::int64_t tiles_of(std::int64_t n) { return ceil_divide(n, tile); }
  KOKKOS_FUNCTION OneBitLambRun const& run_of(std::int64_t index) const {
    int low = 0, high = runs;  // the last run that starts at or before this tile
    while (high - low > 1) {
      int const middle = (low + high) / 2;
      (run[middle].first_tile <= index ? low : high) = middle;
    }
    return run[low];
  }
};

/// Sums the squares of the momentum of a tile.
struct MomentumSums {
  OneBitLambBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    auto const& r = batch.run_of(index);
    std::int64_t const begin = (index - r.first_tile) * OneBitLambBatch::tile,
                       rest = r.numel - begin;
    double squares = 0.0;
    for_chunks(team, rest < OneBitLambBatch::tile ? rest : OneBitLambBatch::tile,
               [&](std::int64_t first, int n) {
                 for (int i = 0; i < n; ++i) {
                   double const m = r.m[begin + first + i];
                   squares += m * m;
                 }
               });
    double const sum = team.sum(squares);
    if (team.rank() == 0) batch.partial[OneBitLambBatch::sums * index] = sum;
  }
};

/// Computes the scaling of a run from the MomentumSums of its tiles.
struct MomentumScaling {
  OneBitLambBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    if (team.rank() != 0) return;
    auto const& r = batch.run[index];
    double squares = 0.0;
    for (std::int64_t t = 0; t < OneBitLambBatch::tiles_of(r.numel); ++t)
      squares += batch.partial[OneBitLambBatch::sums * (r.first_tile + t)];
    double const root = std::sqrt(squares / static_cast<double>(r.numel));
    *r.scalars.scaling = root > 0.0 ? static_cast<float>(1.0 / root) : 0.0f;
    *r.scalars.factor = 1.0f;
  }
};

/// Sums the squares of m/d(v) and of the update of a tile, and finds its largest d(v) / d(f).
struct FactorSums {
  OneBitLambBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    auto const& r = batch.run_of(index);
    auto const& c = batch.coefficients;
    std::int64_t const begin = (index - r.first_tile) * OneBitLambBatch::tile,
                       rest = r.numel - begin;
    double without_decay = 0.0, with_decay = 0.0;
    float largest = 0.0f;
    for_chunks(team, rest < OneBitLambBatch::tile ? rest : OneBitLambBatch::tile,
               [&](std::int64_t first, int n) {
                 for (std::int64_t i = begin + first; i < begin + first + n; ++i) {
                   float const d = c.denominator(r.v[i]);
                   double const u = r.m[i] / d, all = multiply_add(r.l2, r.p[i], r.m[i] / d);
                   float const ratio = d / c.denominator(r.fresh[i]);
                   without_decay += u * u;
                   with_decay += all * all;
                   largest = ratio > largest ? ratio : largest;
                 }
               });
    double const sums[] = {team.sum(without_decay), team.sum(with_decay),
                           static_cast<double>(team.max(largest))};
    if (team.rank() != 0) return;
    for (int k = 0; k < OneBitLambBatch::sums; ++k)
      batch.partial[OneBitLambBatch::sums * index + k] = sums[k];
  }
};

/// Computes the factor of a run from the FactorSums of its tiles.
struct NextFactor {
  OneBitLambBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    if (team.rank() != 0) return;
    auto const& r = batch.run[index];
    double squares = 0.0, with_decay = 0.0, factor = 0.0;
    for (std::int64_t t = 0; t < OneBitLambBatch::tiles_of(r.numel); ++t) {
      double const* const of_tile = batch.partial + OneBitLambBatch::sums * (r.first_tile + t);
      squares += of_tile[0];
      with_decay += of_tile[1];
      factor = of_tile[2] > factor ? of_tile[2] : factor;
    }
    if (r.l2 > 0.0f && with_decay > 0.0) {
      double const ratio = std::sqrt(squares / with_decay), share = ratio < 1.0 ? ratio : 1.0;
      factor = factor * share + (1.0 - share);
    }
    double const last = *r.scalars.factor;
    factor = limited(factor, batch.factor_min, batch.factor_max);
    factor = limited(factor, last * (1.0 - batch.threshold), last * (1.0 + batch.threshold));
    *r.scalars.factor = static_cast<float>(factor);
  }

 private:
  static KOKKOS_FUNCTION double limited(double x, double least, double most) {
    if (x > most) x = most;
    return x < least ? least : x;
  }
};

struct LambCoefficientBatch {
  static constexpr int max_parameters = 200;
  double beta, min_coeff, max_coeff;
  GradientControl const* control;
  int count;
  LambCoefficient parameter[max_parameters];
};

struct NextLambCoefficient {
  LambCoefficientBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    if (team.rank() != 0 || (batch.control && batch.control->skip)) return;
    auto const& p = batch.parameter[index];
    if (p.sums[0] == 0.0 || p.sums[1] == 0.0) return;
    double ratio = std::sqrt(p.sums[0]) / std::sqrt(p.sums[1]);
    if (ratio > batch.max_coeff) ratio = batch.max_coeff;
    if (ratio < batch.min_coeff) ratio = batch.min_coeff;
    if (ratio != 1.0)
      *p.coefficient = static_cast<float>(batch.beta * *p.coefficient + (1.0 - batch.beta) * ratio);
  }
};

}  // namespace tessera::kernels::detail
