#include "optimizers/table.hpp"

#include "optimizers/segments.hpp"
#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> rules() {
  return {{"alpha", 0.99, Range::unit, "decay of the mean of the squared gradients"},
          {"eps", 1e-8, Range::positive, "added to the root of the mean square"},
          {"momentum", 0.0, Range::not_negative, "decay of the momentum buffer; 0: no buffer"},
          {"centered", 0.0, Range::flag, "divide by the standard deviation of the gradients"},
          {"weight_decay", 0.0, Range::not_negative, "weight decay"}};
}

std::vector<StateSpec> states_of(OptimizerSpec const& spec) {
  std::vector<StateSpec> states{{"square_avg"}};
  if (spec.value("momentum") != 0.0) states.push_back({"momentum_buffer"});
  if (spec.value("centered") != 0.0) states.push_back({"grad_avg"});
  return states;
}

kernels::RmsPropStep values(OptimizerSpec const& spec, StepControl const&) {
  kernels::RmsPropStep step;
  step.alpha = spec.value("alpha");
  step.epsilon = spec.value("eps");
  step.momentum = spec.value("momentum");
  step.centered = spec.value("centered") != 0.0;
  return step;
}

}  // namespace

OptimizerEntry rmsprop_entry() {
  return {{"RMSprop",
           {"rmsprop", "rmsprop_bnb", "rmsprop_bnb_32bit"},
           rules(),
           {"square_avg", "momentum_buffer", "grad_avg"},
           1e-2},
          states_of,
          make_elementwise<values, kernels::rmsprop>};
}

}  // namespace tessera::optim::detail
