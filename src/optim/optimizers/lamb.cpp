#include "optimizers/one_bit.hpp"

#include <cmath>

#include "optimizers/segments.hpp"
#include "tessera/core/error.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> all_lamb_rules() {
  auto out = lamb_rules();
  out.push_back({"bias_correction", 1.0, Range::flag, "divide the means by 1 - beta^t"});
  return out;
}

kernels::LambStep lamb_values(OptimizerSpec const& spec, StepControl const& control) {
  kernels::LambStep step;
  step.beta1 = spec.value("beta1");
  step.beta2 = spec.value("beta2");
  step.epsilon = spec.value("eps");
  step.epsilon_inside_root = spec.value("eps_inside_sqrt") != 0.0;
  step.min_coeff = spec.value("min_coeff");
  step.max_coeff = spec.value("max_coeff");
  if (spec.has("bias_correction") && spec.value("bias_correction") != 0.0)
    step.rate_factor = std::sqrt(bias_correction(step.beta2, control.step)) /
                       bias_correction(step.beta1, control.step);
  return step;
}

class Lamb final : public SummingOptimizer {
 public:
  explicit Lamb(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }
  std::int64_t sum_count(int, std::vector<std::int64_t> const&) const override {
    return kernels::lamb_sums;
  }

  void sum(memory::Queue& queue, int, Segments const& segments, StepControl const& control,
           ParameterSums const& sums) const override {
    kernels::lamb_norms(queue, lamb_step(spec_, segments, control, sums));
  }
  void update_with(memory::Queue& queue, Segments const& segments, StepControl const& control,
                   ParameterSums const& sums) const override {
    kernels::lamb(queue, lamb_step(spec_, segments, control, sums));
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

kernels::LambStep lamb_step(OptimizerSpec const& spec, Segments const& segments,
                            StepControl const& control, ParameterSums const& sums) {
  auto step = lamb_values(spec, control);
  set_segments(step, spec, parameter_segments(segments), control);
  for (auto const& of_segment : sums.of[0])
    step.sums.insert(step.sums.end(), of_segment.begin(), of_segment.end());
  return step;
}

OptimizerEntry lamb_entry() {
  return {{"Lamb", {}, all_lamb_rules(), {"exp_avg", "exp_avg_sq"}}, lamb_states, make_as<Lamb>};
}

}  // namespace tessera::optim::detail
