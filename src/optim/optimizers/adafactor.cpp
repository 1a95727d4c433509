#include "optimizers/table.hpp"

#include <algorithm>
#include <cmath>

#include "launch/partial_sums.hpp"
#include "optimizers/adafactor_rule.hpp"
#include "optimizers/adafactor_sums.hpp"
#include "optimizers/elementwise.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

/// transformers' defaults, with scale_parameter and relative_step as its Trainer sets them.
std::vector<HyperparameterRule> adafactor_hyperparameters() {
  return {{"eps1", 1e-30, Range::not_negative, "added to the squared gradients"},
          {"eps2", 1e-3, Range::not_negative, "lower bound of the scale of a parameter"},
          {"clip_threshold", 1.0, Range::positive, "largest root mean square of an update"},
          {"decay_rate", -0.8, Range::any, "the means of step t decay by 1 - t^decay_rate"},
          {"beta1", 0.0, Range::unit, "decay of the mean of the updates; 0: no mean"},
          {"weight_decay", 0.0, Range::not_negative, "weight decay"},
          {"scale_parameter", 0.0, Range::flag,
           "multiply the rate by the root mean square of the parameter"},
          {"relative_step", 0.0, Range::flag, "rate min(0.01, 1/sqrt(t)) in place of the schedule"},
          {"warmup_init", 0.0, Range::flag, "with relative_step: rate min(1e-6 t, 1/sqrt(t))"}};
}

std::vector<StateSpec> adafactor_states(OptimizerSpec const& spec) {
  TESSERA_VALIDATE(spec.value("warmup_init") == 0.0 || spec.value("relative_step") != 0.0,
                   ConfigError,
                   "optimizer Adafactor: warmup_init is set without relative_step; set both, or "
                   "use --warmup_steps");
  TESSERA_VALIDATE(spec.value("decay_rate") <= 0.0, ConfigError,
                   "optimizer Adafactor: decay_rate is ", spec.value("decay_rate"),
                   "; it must be zero or negative, -0.8 is the default");
  std::vector<StateSpec> states;
  if (spec.value("beta1") != 0.0) states.push_back({"exp_avg"});
  states.push_back({"exp_avg_sq_row", Dtype::fp32, Extent::per_row});
  states.push_back({"exp_avg_sq_col", Dtype::fp32, Extent::per_column});
  return states;
}

double rate_of(OptimizerSpec const& spec, StepControl const& control) {
  if (spec.value("relative_step") == 0.0) return control.learning_rate;
  double const t = static_cast<double>(control.step);
  double const most = spec.value("warmup_init") != 0.0 ? 1e-6 * t : 1e-2;
  return std::min(most, 1.0 / std::sqrt(t));
}

std::int64_t rows_in(std::vector<std::int64_t> const& shape) {
  return shape.empty() ? 1 : shape[0];
}
std::int64_t columns_in(std::vector<std::int64_t> const& shape) {
  std::int64_t count = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) count *= shape[i];
  return count;
}

/// The runs of a step, and the batch that they are launched in, which is empty.
struct AdafactorStep {
  Dtype gradient_dtype, weights_dtype;
  AdafactorBatch batch;
  std::vector<AdafactorPlace> runs;
};

void check_runs(AdafactorStep const& step, char const* name) {
  for (auto const& r : step.runs) {
    auto const& p = r.parameter;
    bool const complete = p.rows > 0 && p.columns > 0 && p.row_means && p.column_means && p.sums &&
                          p.update_square && r.master && r.gradient;
    TESSERA_VALIDATE(r.numel == 0 || complete, InternalError, name, " got a run of ", r.numel,
                     " elements without its weights, means, sums or gradient");
    TESSERA_VALIDATE(r.offset >= 0 && r.offset + r.numel <= p.rows * p.columns, InternalError, name,
                     " got elements ", r.offset, " to ", r.offset + r.numel, " of a parameter of ",
                     p.rows, " x ", p.columns);
  }
}

std::int64_t pieces_of(AdafactorPlace const& r) { return r.pieces(); }
std::int64_t column_partials_of(AdafactorPlace const& r) { return r.tiles() * r.parameter.columns; }

/// launch(rule, items) for the tiles of a batch, of which a run has tiles_of(run).
template <template <class> class Rule, class G, class Tiles, class Launch>
void sum_tiles(AdafactorBatch const& batch, Tiles const& tiles_of, Launch const& launch) {
  Rule<G> tiles{{batch, {}}};
  std::int64_t count = 0;
  for (int i = 0; i < batch.runs; ++i) {
    tiles.batch.tiles_before[i] = count;
    count += tiles_of(batch.run[i]);
  }
  if (count > 0) launch(tiles, count);
}

/// Calls sum(batch, items, launch, G) for batches with memory for count(run) partial sums of each
/// run.
template <class Count, class Sum>
void with_sums(memory::Queue& q, char const* name, AdafactorStep const& step, Count const& count,
               Sum const& sum) {
  std::int64_t items = 0;
  for (auto const& r : step.runs)
    if (r.numel > 0) items += count(r);
  with_partial_sums(q, name, items, [=](double* partial, auto const& launch) {
    with_type(step.gradient_dtype, name, [&](auto tag) {
      auto into = step.batch;
      into.partial = partial;
      for_batches(into, step.runs, count,
                  [&](AdafactorBatch const& batch, std::int64_t n) { sum(batch, n, launch, tag); });
    });
  });
}

/// Sums of the pieces of all runs by Rule, then the totals of each run.
template <template <class> class Rule, class Totals>
void sum_pieces(memory::Queue& q, char const* name, AdafactorStep const& step) {
  with_sums(q, name, step, pieces_of,
            [](AdafactorBatch const& batch, std::int64_t n, auto const& launch, auto tag) {
              launch(Rule<typename decltype(tag)::type>{batch}, n);
              launch(Totals{batch}, std::int64_t{batch.runs});
            });
}

/// Column sums by a sweep of their own, as a device's threads want it.
void sum_columns(memory::Queue& q, char const* name, AdafactorStep const& step) {
  with_sums(q, name, step, column_partials_of,
            [](AdafactorBatch const& batch, std::int64_t, auto const& launch, auto tag) {
              sum_tiles<AdafactorColumnTiles, typename decltype(tag)::type>(
                  batch, [](auto const& r) { return r.tiles(); }, launch);
              launch(AdafactorColumnTotals{batch}, std::int64_t{batch.runs});
            });
}

/// Row and column sums in one sweep, as host threads want it.
void sum_rows_and_columns(memory::Queue& q, char const* name, AdafactorStep const& step) {
  auto const partials_of = [](AdafactorPlace const& r) {
    return pieces_of(r) + column_partials_of(r);
  };
  with_sums(q, name, step, partials_of,
            [](AdafactorBatch batch, std::int64_t, auto const& launch, auto tag) {
              for (int i = 0; i < batch.runs; ++i)
                batch.run[i].column_partials = batch.run[i].pieces();
              auto const items = [](AdafactorPlace const& r) {
                return r.parameter.columns > 1 ? r.tiles() : r.pieces();
              };
              sum_tiles<AdafactorTileSums, typename decltype(tag)::type>(batch, items, launch);
              launch(AdafactorTotals<true>{batch}, std::int64_t{batch.runs});
              launch(AdafactorColumnTotals{batch}, std::int64_t{batch.runs});
            });
}

/// With g2 = g^2 + epsilon_gradient, R_i and C_j its means over row i and column j:
///   r_i <- beta2 r_i + (1-beta2) R_i;  c_j <- beta2 c_j + (1-beta2) C_j
///   u = g / sqrt(r_i c_j / mean(r)), or g / sqrt(r_i) with a single column
///   lr <- lr * max(epsilon_scale, rms(p)) with scale_parameter;  u <- lr * u / max(1, rms(u) /
///   clip_threshold)
///   with exp_avg: m <- beta1 m + (1-beta1) u, and m in place of u
///   p <- p - lr * weight_decay * p - u
/// in fp32, sums in double. Source: Shazeer & Stern, "Adafactor: Adaptive Learning Rates with
/// Sublinear Memory Cost", ICML 2018, Alg. 4 and 5, in the form of transformers' Adafactor.
/// Traffic of all kernels 20 B read (24 B on a device) + 4 B written (+2).
class Adafactor final : public SummingOptimizer {
 public:
  explicit Adafactor(OptimizerSpec const& spec)
      : spec_(spec), first_reduced_(spec.states.size() - 2) {}

  OptimizerSpec const& spec() const override { return spec_; }
  /// Means of the squared gradients, then the norm of the update that they give.
  int rounds() const override { return 2; }
  std::int64_t sum_count(int round, std::vector<std::int64_t> const& shape) const override {
    return round == 0 ? adafactor_sum_count(rows_in(shape), columns_in(shape)) : 1;
  }

  void sum(memory::Queue& queue, int round, Segments const& segments, StepControl const& control,
           ParameterSums const& sums) const override {
    char const* const name = round == 0 ? "tessera::kernels::adafactor_sums"
                                        : "tessera::kernels::adafactor_update_squares";
    auto const step = step_of(segments, control, sums);
    check_runs(step, name);
    if (round == 1)
      return sum_pieces<AdafactorUpdateSquares, AdafactorTotals<false>>(queue, name, step);
    if (!on_device(queue)) return sum_rows_and_columns(queue, name, step);
    sum_pieces<AdafactorRowSums, AdafactorTotals<true>>(queue, name, step);
    sum_columns(queue, name, step);
  }

  void update_states(memory::Queue& queue, int round,
                     std::vector<CompleteParameter> const& parameters,
                     StepControl const& control) const override {
    if (round != 0) return;
    double const beta2 =
        1.0 - std::pow(static_cast<double>(control.step), spec_.value("decay_rate"));
    AdafactorMeansBatch batch{control.gradients, beta2, 0, {}};
    auto const flush = [&] {
      parallel_rows(queue, "tessera::kernels::adafactor_means", batch.count, AdafactorMeans{batch});
      batch.count = 0;
    };
    for (auto const& p : parameters) {
      if (batch.count == AdafactorMeansBatch::max_parameters) flush();
      batch.parameter[batch.count++] = parameter_of(p.shape, p.states, p.sums);
    }
    flush();
  }

  void update_with(memory::Queue& queue, Segments const& segments, StepControl const& control,
                   ParameterSums const& sums) const override {
    char const* const name = "tessera::kernels::adafactor";
    auto const step = step_of(segments, control, sums);
    check_runs(step, name);
    with_type(step.gradient_dtype, name, [&](auto g) {
      with_type(step.weights_dtype, name, [&](auto w) {
        using Update = AdafactorUpdate<typename decltype(g)::type, typename decltype(w)::type>;
        for_batches(step.batch, step.runs, pieces_of,
                    [&](AdafactorBatch const& batch, std::int64_t n) {
                      parallel_rows(queue, name, n, Update{batch});
                    });
      });
    });
  }

 private:
  AdafactorParameter parameter_of(std::vector<std::int64_t> const& shape,
                                  std::vector<void*> const& states,
                                  std::vector<double*> const& sums) const {
    return {rows_in(shape),
            columns_in(shape),
            static_cast<float*>(states[first_reduced_]),
            static_cast<float*>(states[first_reduced_ + 1]),
            sums[0],
            sums[1]};
  }

  AdafactorStep step_of(Segments const& segments, StepControl const& control,
                        ParameterSums const& sums) const {
    RuleStep const of_step(spec_, control);
    AdafactorStep step{
        segments.gradient_dtype,
        segments.weights_dtype,
        {{1.0f, fp32(of_step["beta1"]), fp32(1.0 - of_step["beta1"]), fp32(of_step["eps1"]),
          of_step["eps2"], of_step["clip_threshold"], of_step["scale_parameter"] != 0.0},
         control.gradients,
         nullptr,
         prefetch_distance(Prefetched::updates),
         0,
         {}},
        {}};
    double const rate = rate_of(spec_, control);
    std::vector<std::vector<double*>> of_runs;
    for (std::size_t i = 0; i < segments.list.size(); ++i)
      for (std::size_t j = 0; j < segments.list[i].parameters.size(); ++j)
        of_runs.push_back({sums.of[0][i][j], sums.of[1][i][j]});
    auto const runs = parameter_segments(segments);
    for (std::size_t k = 0; k < runs.list.size(); ++k) {
      auto const& s = runs.list[k];
      auto const& run = s.parameters[0];
      float* const exp_avg = first_reduced_ > 0 ? static_cast<float*>(s.states[0]) : nullptr;
      step.runs.push_back({parameter_of(run.shape, s.parameter_states[0], of_runs[k]),
                           run.parameter_offset, run.numel, static_cast<float*>(s.master), exp_avg,
                           s.gradient, s.weights_out, fp32(rate),
                           fp32(spec_.value("weight_decay", s.group)), 0, 0});
    }
    return step;
  }

  OptimizerSpec spec_;
  std::size_t first_reduced_;  ///< state that is not element-wise: the rows', then the columns'
};

}  // namespace

OptimizerEntry adafactor_entry() {
  return {{"Adafactor",
           {"adafactor"},
           adafactor_hyperparameters(),
           {"exp_avg", "exp_avg_sq_row", "exp_avg_sq_col"},
           1e-3,
           "DeepSpeed takes PyTorch's form of it, which is not implemented; use --optim adafactor, "
           "which is transformers' form, without the section"},
          adafactor_states,
          make_as<Adafactor>};
}

}  // namespace tessera::optim::detail
