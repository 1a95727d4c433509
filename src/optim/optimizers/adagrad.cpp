#include "optimizers/table.hpp"

#include "optimizers/segments.hpp"
#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> rules() {
  return {{"lr_decay", 0.0, Range::not_negative, "step t divides the rate by 1 + (t-1) lr_decay"},
          {"eps", 1e-10, Range::positive, "added to the root of the sum of squares"},
          {"initial_accumulator_value", 0.0, Range::not_negative, "initial sum of squares"},
          {"weight_decay", 0.0, Range::not_negative, "weight decay"}};
}

std::vector<StateSpec> states_of(OptimizerSpec const&) { return {{"sum"}}; }

kernels::AdagradStep values(OptimizerSpec const& spec, StepControl const& control) {
  kernels::AdagradStep step;
  step.epsilon = spec.value("eps");
  step.initial_sum = control.step == 1 ? spec.value("initial_accumulator_value") : 0.0;
  step.rate_divisor = 1.0 + static_cast<double>(control.step - 1) * spec.value("lr_decay");
  return step;
}

}  // namespace

OptimizerEntry adagrad_entry() {
  return {{"Adagrad", {"adagrad"}, rules(), {"sum"}, 1e-2},
          states_of,
          make_elementwise<values, kernels::adagrad>};
}

}  // namespace tessera::optim::detail
