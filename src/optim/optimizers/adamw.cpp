#include "optimizers/table.hpp"

#include "optimizers/segments.hpp"
#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> rules() {
  auto out = adam_rules("added to the root of the mean square");
  out.push_back({"bias_correction", 1.0, Range::flag, "divide the means by 1 - beta^t"});
  return out;
}

std::vector<StateSpec> states_of(OptimizerSpec const&) { return {{"exp_avg"}, {"exp_avg_sq"}}; }

kernels::AdamWStep values(OptimizerSpec const& spec, StepControl const& control) {
  kernels::AdamWStep step;
  step.beta1 = spec.value("beta1");
  step.beta2 = spec.value("beta2");
  step.epsilon = spec.value("eps");
  if (spec.value("bias_correction") != 0.0) {
    step.bias_correction1 = bias_correction(step.beta1, control.step);
    step.bias_correction2 = bias_correction(step.beta2, control.step);
  }
  step.adam_l2 = spec.algorithm == "Adam";
  return step;
}

constexpr auto make = make_elementwise<values, kernels::adamw>;

}  // namespace

OptimizerEntry adamw_entry() {
  return {{"AdamW",
           {"adamw_torch_fused", "adamw_torch", "adamw_hf", "adamw_apex_fused", "adamw_torch_xla",
            "adamw_torch_npu_fused", "paged_adamw", "paged_adamw_32bit"},
           rules(),
           {"exp_avg", "exp_avg_sq"}},
          states_of,
          make};
}
OptimizerEntry adam_entry() {
  return {{"Adam", {}, rules(), {"exp_avg", "exp_avg_sq"}}, states_of, make};
}

}  // namespace tessera::optim::detail
