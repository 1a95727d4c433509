#include "detail/one_bit.hpp"

#include "detail/elementwise.hpp"
#include "tessera/kernels/adamw.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> common_rules() {
  return adam_rules("added to the root of the mean square");
}

std::vector<HyperparameterRule> one_bit_adam_rules() {
  auto out = common_rules();
  out.push_back({"freeze_step", 100000.0, Range::positive, "last step without compression"});
  return out;
}

std::vector<HyperparameterRule> zero_one_adam_rules() {
  auto out = common_rules();
  out.push_back(
      {"var_freeze_step", 100000.0, Range::positive, "last step that updates the mean square"});
  out.push_back({"var_update_scaler", 16.0, Range::positive,
                 "steps until it is updated half as often, with compression in between"});
  return out;
}

std::vector<StateSpec> states_of(OptimizerSpec const&) { return {{"exp_avg"}, {"exp_avg_sq"}}; }

kernels::AdamWStep values(OptimizerSpec const& spec, StepControl const&) {
  kernels::AdamWStep step;
  step.beta1 = spec.value("beta1");
  step.beta2 = spec.value("beta2");
  step.epsilon = spec.value("eps");
  return step;
}

constexpr auto make = make_elementwise<values, kernels::adamw>;

}  // namespace

OptimizerEntry one_bit_adam_entry() {
  return {{"OneBitAdam", {}, one_bit_adam_rules(), {"exp_avg", "exp_avg_sq"}}, states_of, make};
}
OptimizerEntry zero_one_adam_entry() {
  return {{"ZeroOneAdam", {}, zero_one_adam_rules(), {"exp_avg", "exp_avg_sq"}}, states_of, make};
}

}  // namespace tessera::optim::detail
