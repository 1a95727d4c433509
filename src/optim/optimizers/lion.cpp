#include "optimizers/table.hpp"

#include "optimizers/segments.hpp"
#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> rules() {
  return {{"beta1", 0.9, Range::unit, "share of the mean in the direction"},
          {"beta2", 0.999, Range::unit, "decay of the mean of the gradients"},
          {"weight_decay", 0.0, Range::not_negative, "weight decay"}};
}

std::vector<StateSpec> states_of(OptimizerSpec const&) { return {{"exp_avg"}}; }

kernels::LionStep values(OptimizerSpec const& spec, StepControl const&) {
  kernels::LionStep step;
  step.beta1 = spec.value("beta1");
  step.beta2 = spec.value("beta2");
  return step;
}

}  // namespace

OptimizerEntry lion_entry() {
  return {{"Lion", {"lion_32bit", "paged_lion_32bit"}, rules(), {"exp_avg"}},
          states_of,
          make_elementwise<values, kernels::lion>};
}

}  // namespace tessera::optim::detail
