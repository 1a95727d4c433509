#include "optimizers/table.hpp"

#include <cmath>

#include "launch/partial_sums.hpp"
#include "optimizers/elementwise.hpp"
#include "optimizers/one_bit.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/optim/compression.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::optim::detail {
namespace {

using namespace kernels::detail;
using kernels::GradientControl;
using Range = HyperparameterRule::Range;

// The steps after the warm-up, and what the warm-up keeps for them. Source: Li et al., "1-bit LAMB:
// Communication Efficient Large-Scale Large-Batch Training with LAMB's Convergence Speed", 2021,
// algorithm 1, in DeepSpeed's form. States exp_avg (m), exp_avg_sq (v), exp_avg_sq_fresh (f) and
// worker_error (e).

std::vector<HyperparameterRule> one_bit_lamb_rules() {
  auto out = lamb_rules();
  out.push_back({"freeze_step", 100000.0, Range::positive, "last step without compression"});
  out.push_back({"coeff_beta", 0.9, Range::unit, "decay of the mean of the ratios of the norms"});
  out.push_back({"factor_max", 4.0, Range::positive, "largest factor of this mean afterwards"});
  out.push_back({"factor_min", 0.5, Range::not_negative, "smallest factor of it"});
  out.push_back(
      {"factor_threshold", 0.1, Range::not_negative, "share by which a step changes the factor"});
  return out;
}

std::vector<StateSpec> one_bit_lamb_states(OptimizerSpec const& spec) {
  TESSERA_VALIDATE(spec.value("factor_min") <= spec.value("factor_max"), ConfigError, "optimizer ",
                   spec.algorithm, ": factor_min is ", spec.value("factor_min"),
                   " and factor_max is ", spec.value("factor_max"),
                   "; factor_min must not be larger");
  auto out = lamb_states(spec);
  out.push_back({"exp_avg_sq_fresh"});
  out = with_errors(std::move(out));
  for (char const* name : {"lamb_coeff_freeze", "last_factor", "scaling_coeff"})
    out.push_back({.name = name, .extent = Extent::scalar});
  return out;
}

struct OneBitLambCoefficients {
  float gradient_factor;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float epsilon, epsilon_inside;

  KOKKOS_INLINE_FUNCTION float denominator(float v) const {
    return std::sqrt(v + epsilon_inside) + epsilon;
  }
};

/// What all rules of 1-bit LAMB share. Their rates need values of a parameter.
struct OneBitLambRule {
  using Coefficients = OneBitLambCoefficients;

  static Coefficients coefficients(RuleStep const& step) {
    float const epsilon = fp32(step["eps"]);
    bool const is_inside = step["eps_inside_sqrt"] != 0.0;
    return {1.0f,
            fp32(step["beta1"]),
            fp32(1.0 - step["beta1"]),
            fp32(step["beta2"]),
            fp32(1.0 - step["beta2"]),
            is_inside ? 0.0f : epsilon,
            is_inside ? epsilon : 0.0f};
  }
};

/// Values of a parameter that every rank holds, in memory of the queue's space.
struct OneBitLambScalars {
  float* coefficient = nullptr;  ///< frozen: running mean of the ratios of the warm-up
  float* factor = nullptr;       ///< that changes the coefficient after it
  /// 1 / root of the mean square of the momentum at the freeze; 0: a parameter without momentum,
  /// which takes no part in the exchange.
  float* scaling = nullptr;
};

/// e <- e + scaling * (m + (1-beta1) (g - m)), m unchanged.
struct ScaledMomentumRule : OneBitLambRule {
  static constexpr char const* name = "tessera::kernels::one_bit_lamb_momentum";
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

/// With the exchanged momentum x in the place of the gradient:  n = x / scaling,
///   f <- beta2 f + (1-beta2) ((n - beta1 m) / (1-beta1))^2;  m <- n.
struct FreshMomentsRule : OneBitLambRule {
  static constexpr char const* name = "tessera::kernels::one_bit_lamb_moments";
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

/// Before the first exchange: f <- v.
struct CopyVarianceRule : OneBitLambRule {
  static constexpr char const* name = "tessera::kernels::one_bit_lamb_begin";
  struct Rates {};
  static constexpr int states = 2;  ///< exp_avg_sq, exp_avg_sq_fresh

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const&, Rates const&, float, float&,
                                             float& v, float& fresh) {
    fresh = v;
  }
};

/// p <- p - lr * coefficient * factor * (m/d(v) + weight_decay * p), with d(s) = sqrt(s) + epsilon.
struct FrozenLambRule : OneBitLambRule {
  static constexpr char const* name = "tessera::kernels::one_bit_lamb";
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

  static KOKKOS_FUNCTION std::int64_t tiles_of(OneBitLambRun const& r) {
    return ceil_divide(r.numel, tile);
  }
  KOKKOS_FUNCTION OneBitLambRun const& run_of(std::int64_t index) const {
    return run_with(run, runs, index);
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
    for (std::int64_t t = 0; t < OneBitLambBatch::tiles_of(r); ++t)
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

/// Computes the factor of a run from the FactorSums of its tiles. It becomes the largest d(v) /
/// d(f), and with weight decay a mean of that and 1 with the weight |m/d(v)| / |m/d(v) +
/// weight_decay * p|, at most 1; it stays in [factor_min, factor_max] and changes by at most
/// factor_threshold of itself in a step.
struct NextFactor {
  OneBitLambBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    if (team.rank() != 0) return;
    auto const& r = batch.run[index];
    double squares = 0.0, with_decay = 0.0, factor = 0.0;
    for (std::int64_t t = 0; t < OneBitLambBatch::tiles_of(r); ++t) {
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

struct LambCoefficient {
  double const* sums;  ///< squares of the weights and of the update
  float* coefficient;
};
struct LambCoefficientBatch {
  static constexpr int max_parameters = 200;
  double beta, min_coeff, max_coeff;
  GradientControl const* control;
  int count;
  LambCoefficient parameter[max_parameters];
};

/// In the warm-up, with r as in Lamb:  coefficient <- beta * coefficient + (1-beta) r, unless r
/// is 1.
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

class OneBitLamb final : public SummingOptimizer, public Compression {
 public:
  explicit OneBitLamb(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }
  std::int64_t sum_count(int, std::vector<std::int64_t> const&) const override { return 2; }

  void sum(memory::Queue& queue, int, Segments const& segments, StepControl const& control,
           ParameterSums const& sums) const override {
    sum_lamb_norms(queue, spec_, with_states(segments, {exp_avg, exp_avg_sq}), control, sums);
  }
  void update_states(memory::Queue& queue, int, std::vector<CompleteParameter> const& parameters,
                     StepControl const& control) const override {
    LambCoefficientBatch batch{spec_.value("coeff_beta"),
                               spec_.value("min_coeff"),
                               spec_.value("max_coeff"),
                               control.gradients,
                               0,
                               {}};
    auto const flush = [&] {
      parallel_rows(queue, "tessera::kernels::lamb_coefficients", batch.count,
                    NextLambCoefficient{batch});
      batch.count = 0;
    };
    for (auto const& p : parameters) {
      if (batch.count == LambCoefficientBatch::max_parameters) flush();
      batch.parameter[batch.count++] = {p.sums[0],
                                        static_cast<float*>(p.states[lamb_coeff_freeze])};
    }
    flush();
  }
  void update_with(memory::Queue& queue, Segments const& segments, StepControl const& control,
                   ParameterSums const& sums) const override {
    update_as_lamb(queue, spec_, with_states(segments, {exp_avg, exp_avg_sq}), control, sums);
  }

  StepCommunication communication(std::int64_t step) const override {
    bool const compresses = step > freeze_step();
    return {.reduces_gradients = !compresses, .phase = compresses ? "compressed" : "warm-up"};
  }
  /// The momentum of a parameter is scaled before the exchange.
  Scales scales() const override { return Scales::per_unit; }

  void advance(memory::Queue& queue, Segments const& segments,
               StepControl const& control) const override {
    auto const parts = [&](std::vector<std::size_t> const& kept) {
      auto out = parameter_segments(with_states(segments, kept));
      for (auto& s : out.list) s.weights_out = nullptr;
      return out;
    };
    if (control.step == freeze_step() + 1) {
      apply<CopyVarianceRule>(queue, parts({exp_avg_sq, exp_avg_sq_fresh}), control,
                              [](auto const&...) { return CopyVarianceRule::Rates{}; });
      reduce<MomentumSums, MomentumScaling>(queue, "tessera::kernels::one_bit_lamb_scaling",
                                            parts({exp_avg, exp_avg_sq, exp_avg_sq_fresh}),
                                            control);
    }
    apply<ScaledMomentumRule>(queue, parts({exp_avg, worker_error}), control,
                              [](auto const&, auto const& p) {
                                return ScaledMomentumRule::Rates{p.scaling, 0.0f};
                              });
  }

  void complete(memory::Queue& queue, Segments const& segments, StepControl const& control,
                Directions const& exchanged) const override {
    auto const parts = [&](std::vector<std::size_t> const& kept) {
      return with_gradients(with_states(segments, kept), exchanged);
    };
    auto moments = parts({exp_avg, exp_avg_sq_fresh});
    for (auto& s : moments.list) s.weights_out = nullptr;
    apply<FreshMomentsRule>(queue, moments, control, [](auto const&, auto const& p) {
      return FreshMomentsRule::Rates{p.scaling, 0.0f};
    });
    reduce<FactorSums, NextFactor>(queue, "tessera::kernels::one_bit_lamb_factors",
                                   parts({exp_avg, exp_avg_sq, exp_avg_sq_fresh}), control);
    apply<FrozenLambRule>(queue, parts({exp_avg, exp_avg_sq}), control,
                          [&](Segment const& s, auto const& p) {
                            return FrozenLambRule::Rates{p.coefficient, p.factor, decay_of(s),
                                                         fp32(control.learning_rate)};
                          });
  }

 private:
  /// States by their places in the list.
  enum State : std::size_t {
    exp_avg,
    exp_avg_sq,
    exp_avg_sq_fresh,
    worker_error,
    server_error,
    lamb_coeff_freeze,
    last_factor,
    scaling_coeff
  };

  std::int64_t freeze_step() const { return static_cast<std::int64_t>(spec_.value("freeze_step")); }

  float decay_of(Segment const& s) const { return fp32(spec_.value("weight_decay", s.group)); }
  static OneBitLambScalars scalars_of(Segment const& s) {
    auto const& of_parameter = s.parameter_states.at(0);
    auto const value = [&](State k) { return static_cast<float*>(of_parameter[k]); };
    return {value(lamb_coeff_freeze), value(last_factor), value(scaling_coeff)};
  }

  /// @p rates_of(segment, scalars) gives the rates of @p parts of one parameter each.
  template <class Rule, class RatesOf>
  void apply(memory::Queue& queue, Segments const& parts, StepControl const& control,
             RatesOf const& rates_of) const {
    launch_rule<Rule>(queue, spec_, parts, control, [&](RuleStep const&, std::size_t i) {
      return rates_of(parts.list[i], scalars_of(parts.list[i]));
    });
  }

  /// Partial sums of tiles, then a value of each parameter from them.
  template <class Sums, class Values>
  void reduce(memory::Queue& queue, char const* name, Segments const& parts,
              StepControl const& control) const {
    std::vector<OneBitLambRun> runs;
    std::int64_t tiles = 0;
    for (auto const& s : parts.list) {
      if (s.numel == 0) continue;
      auto const state = [&](std::size_t k) { return static_cast<float const*>(s.states[k]); };
      runs.push_back({static_cast<float const*>(s.master), state(0), state(1), state(2),
                      scalars_of(s), s.numel, 0, decay_of(s)});
      tiles += OneBitLambBatch::tiles_of(runs.back());
    }
    OneBitLambBatch const batch{OneBitLambRule::coefficients({spec_, control}),
                                spec_.value("factor_min"),
                                spec_.value("factor_max"),
                                spec_.value("factor_threshold"),
                                nullptr,
                                0,
                                {}};
    with_partial_sums(queue, name, OneBitLambBatch::sums * tiles,
                      [batch, runs](double* partial, auto const& launch) {
                        auto into = batch;
                        into.partial = partial;
                        for_batches(into, runs, OneBitLambBatch::tiles_of,
                                    [&](OneBitLambBatch const& full, std::int64_t n) {
                                      launch(Sums{full}, n);
                                      launch(Values{full}, std::int64_t{full.runs});
                                    });
                      });
  }

  OptimizerSpec spec_;
};

}  // namespace

OptimizerEntry one_bit_lamb_entry() {
  return {{"OneBitLamb",
           {},
           one_bit_lamb_rules(),
           {"exp_avg", "exp_avg_sq", "exp_avg_sq_fresh", worker_error_name, server_error_name,
            "lamb_coeff_freeze", "last_factor", "scaling_coeff"}},
          one_bit_lamb_states,
          make_as<OneBitLamb>};
}

}  // namespace tessera::optim::detail
