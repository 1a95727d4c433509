#include "optimizers/one_bit.hpp"

#include <cmath>

#include "launch/interleaved_sums.hpp"
#include "launch/partial_sums.hpp"
#include "optimizers/elementwise.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::optim::detail {
namespace {

using namespace kernels::detail;
using kernels::GradientControl;
using Range = HyperparameterRule::Range;

/// Sums of each parameter: squares of its weights, squares of its update.
constexpr std::int64_t lamb_sums = 2;

/// m and v as in AdamW, then with u = m / (sqrt(v) + epsilon) + weight_decay * p (epsilon inside
/// the root on demand)
///   r = |p| / |u| of the complete parameter, in [min_coeff, max_coeff]; 1 when a norm is 0
///   p <- p - rate_factor * lr * r * u
/// in fp32, norms in double. The moments in u are not corrected; rate_factor is sqrt(1-beta2^t) /
/// (1-beta1^t), or 1 without bias correction. Sources: You et al., "Large Batch Optimization for
/// Deep Learning", ICLR 2020, Alg. 2, in the form of DeepSpeed's FusedLamb. Traffic of both kernels
/// 32 B read + 12 B written (+2).
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
  static constexpr char const* name = "tessera::kernels::lamb";

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
  static Coefficients coefficients(RuleStep const& step) {
    float const epsilon = fp32(step["eps"]);
    bool const is_inside = step["eps_inside_sqrt"] != 0.0;
    return {1.0f,
            fp32(1.0 - step["beta1"]),
            fp32(step["beta2"]),
            fp32(1.0 - step["beta2"]),
            is_inside ? 0.0f : epsilon,
            is_inside ? epsilon : 0.0f,
            step["min_coeff"],
            step["max_coeff"]};
  }
  static Rates rates(RuleStep const& step, double weight_decay, double const* sums) {
    bool const corrects = step.value_or("bias_correction", 0.0) != 0.0;
    double const factor =
        corrects ? std::sqrt(step.bias_correction("beta2")) / step.bias_correction("beta1") : 1.0;
    return {fp32(weight_decay), fp32(step.learning_rate * factor), sums};
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

  static std::int64_t tiles_of(LambNormRun const& r) { return ceil_divide(r.numel, tile); }
};

/// partial[2 * index] = squares of the weights of a tile, then squares of its update.
template <class G>
struct LambTileNorms {
  LambNormBatch batch;
  PrefetchDistance ahead;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    LambNormRun const& r = run_with(batch.run, batch.runs, index);
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

std::vector<HyperparameterRule> all_lamb_rules() {
  auto out = lamb_rules();
  out.push_back({"bias_correction", 1.0, Range::flag, "divide the means by 1 - beta^t"});
  return out;
}

/// The sums of @p runs of one parameter each.
std::vector<double*> sums_of(Segments const& runs, ParameterSums const& sums) {
  std::vector<double*> out;
  for (auto const& of_segment : sums.of.at(0))
    out.insert(out.end(), of_segment.begin(), of_segment.end());
  TESSERA_VALIDATE(out.size() == runs.list.size(), InternalError, "LAMB got ", out.size(),
                   " sums for ", runs.list.size(), " parameters");
  return out;
}

class Lamb final : public SummingOptimizer {
 public:
  explicit Lamb(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }
  std::int64_t sum_count(int, std::vector<std::int64_t> const&) const override { return lamb_sums; }

  void sum(memory::Queue& queue, int, Segments const& segments, StepControl const& control,
           ParameterSums const& sums) const override {
    sum_lamb_norms(queue, spec_, segments, control, sums);
  }
  void update_with(memory::Queue& queue, Segments const& segments, StepControl const& control,
                   ParameterSums const& sums) const override {
    update_as_lamb(queue, spec_, segments, control, sums);
  }

 private:
  OptimizerSpec spec_;
};

}  // namespace

std::vector<HyperparameterRule> lamb_rules() {
  auto out = adam_rules("added to the root of the mean square");
  out.push_back({"eps_inside_sqrt", 0.0, Range::flag, "add eps to the mean square instead"});
  out.push_back(
      {"max_coeff", 10.0, Range::positive, "largest ratio of the norms of weights and update"});
  out.push_back({"min_coeff", 0.01, Range::not_negative, "smallest ratio of these norms"});
  return out;
}

std::vector<StateSpec> lamb_states(OptimizerSpec const& spec) {
  TESSERA_VALIDATE(spec.value("min_coeff") <= spec.value("max_coeff"), ConfigError, "optimizer ",
                   spec.algorithm, ": min_coeff is ", spec.value("min_coeff"), " and max_coeff is ",
                   spec.value("max_coeff"), "; min_coeff must not be larger");
  return {{"exp_avg"}, {"exp_avg_sq"}};
}

void sum_lamb_norms(memory::Queue& queue, OptimizerSpec const& spec, Segments const& segments,
                    StepControl const& control, ParameterSums const& sums) {
  char const* const name = "tessera::kernels::lamb_norms";
  auto const parts = parameter_segments(segments);
  auto const of_runs = sums_of(parts, sums);
  std::vector<LambNormRun> runs;
  std::int64_t tiles = 0;
  for (std::size_t i = 0; i < parts.list.size(); ++i) {
    auto const& s = parts.list[i];
    check_segment<LambRule>(s, name);
    if (s.numel == 0) continue;
    runs.push_back({static_cast<float*>(s.master), static_cast<float*>(s.states[0]),
                    static_cast<float*>(s.states[1]), s.gradient, of_runs[i], s.numel, 0,
                    fp32(spec.value("weight_decay", s.group))});
    tiles += LambNormBatch::tiles_of(runs.back());
  }
  LambNormBatch const batch{
      LambRule::coefficients({spec, control}), control.gradients, nullptr, 0, {}};
  with_partial_sums(
      queue, name, lamb_sums * tiles,
      [batch, runs, dtype = parts.gradient_dtype, name](double* partial, auto const& launch) {
        with_type(dtype, name, [&](auto tag) {
          using G = typename decltype(tag)::type;
          auto into = batch;
          into.partial = partial;
          for_batches(
              into, runs, LambNormBatch::tiles_of,
              [&](LambNormBatch const& full, std::int64_t count) {
                launch(LambTileNorms<G>{full, prefetch_distance(Prefetched::updates)}, count);
                launch(LambTotals{full}, std::int64_t{full.runs});
              });
        });
      });
}

void update_as_lamb(memory::Queue& queue, OptimizerSpec const& spec, Segments const& segments,
                    StepControl const& control, ParameterSums const& sums) {
  auto const parts = parameter_segments(segments);
  auto const of_runs = sums_of(parts, sums);
  launch_rule<LambRule>(queue, spec, parts, control, [&](RuleStep const& step, std::size_t i) {
    return LambRule::rates(step, spec.value("weight_decay", parts.list[i].group), of_runs[i]);
  });
}

OptimizerEntry lamb_entry() {
  return {{"Lamb", {}, all_lamb_rules(), {"exp_avg", "exp_avg_sq"}}, lamb_states, make_as<Lamb>};
}

}  // namespace tessera::optim::detail
