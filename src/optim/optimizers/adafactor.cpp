#include "optimizers/table.hpp"

#include <algorithm>
#include <cmath>

#include "optimizers/segments.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/optimizer/adafactor.hpp"
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

std::int64_t rows_of(std::vector<std::int64_t> const& shape) {
  return shape.empty() ? 1 : shape[0];
}
std::int64_t columns_of(std::vector<std::int64_t> const& shape) {
  std::int64_t count = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) count *= shape[i];
  return count;
}

class Adafactor final : public SummingOptimizer {
 public:
  explicit Adafactor(OptimizerSpec const& spec)
      : spec_(spec), first_reduced_(spec.states.size() - 2) {}

  OptimizerSpec const& spec() const override { return spec_; }
  /// Means of the squared gradients, then the norm of the update that they give.
  int rounds() const override { return 2; }
  std::int64_t sum_count(int round, std::vector<std::int64_t> const& shape) const override {
    return round == 0 ? kernels::adafactor_sum_count(rows_of(shape), columns_of(shape)) : 1;
  }

  void sum(memory::Queue& queue, int round, Segments const& segments, StepControl const& control,
           ParameterSums const& sums) const override {
    auto const step = step_of(segments, control, sums);
    round == 0 ? kernels::adafactor_sums(queue, step)
               : kernels::adafactor_update_squares(queue, step);
  }

  void update_states(memory::Queue& queue, int round,
                     std::vector<CompleteParameter> const& parameters,
                     StepControl const& control) const override {
    if (round != 0) return;
    std::vector<kernels::AdafactorParameter> out;
    for (auto const& p : parameters) out.push_back(parameter_of(p.shape, p.states, p.sums));
    kernels::adafactor_means(queue, out, values(control));
  }

  void update_with(memory::Queue& queue, Segments const& segments, StepControl const& control,
                   ParameterSums const& sums) const override {
    kernels::adafactor(queue, step_of(segments, control, sums));
  }

 private:
  kernels::AdafactorStep values(StepControl const& control) const {
    kernels::AdafactorStep step;
    step.control = control.gradients;
    step.beta1 = spec_.value("beta1");
    step.beta2 = 1.0 - std::pow(static_cast<double>(control.step), spec_.value("decay_rate"));
    step.epsilon_gradient = spec_.value("eps1");
    step.epsilon_scale = spec_.value("eps2");
    step.clip_threshold = spec_.value("clip_threshold");
    step.scale_parameter = spec_.value("scale_parameter") != 0.0;
    return step;
  }

  kernels::AdafactorParameter parameter_of(std::vector<std::int64_t> const& shape,
                                           std::vector<void*> const& states,
                                           std::vector<double*> const& sums) const {
    return {rows_of(shape),
            columns_of(shape),
            static_cast<float*>(states[first_reduced_]),
            static_cast<float*>(states[first_reduced_ + 1]),
            sums[0],
            sums[1]};
  }

  kernels::AdafactorStep step_of(Segments const& segments, StepControl const& control,
                                 ParameterSums const& sums) const {
    auto step = values(control);
    step.gradient_dtype = segments.gradient_dtype;
    step.weights_dtype = segments.weights_dtype;
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
                           s.gradient, s.weights_out, rate, spec_.value("weight_decay", s.group)});
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
