#include "optimizers/table.hpp"

#include "optimizers/segments.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> rules() {
  return {{"momentum", 0.0, Range::not_negative, "decay of the momentum buffer; 0: no buffer"},
          {"dampening", 0.0, Range::any, "share of the gradient left out of the momentum buffer"},
          {"weight_decay", 0.0, Range::not_negative, "weight decay"},
          {"nesterov", 0.0, Range::flag, "Nesterov's form of momentum"}};
}

std::vector<StateSpec> states_of(OptimizerSpec const& spec) {
  double const momentum = spec.value("momentum"), dampening = spec.value("dampening");
  TESSERA_VALIDATE(spec.value("nesterov") == 0.0 || (momentum > 0.0 && dampening == 0.0),
                   ConfigError, "optimizer SGD: nesterov is set with momentum ", momentum,
                   " and dampening ", dampening, "; it needs a momentum and zero dampening");
  if (momentum == 0.0) return {};
  return {{"momentum_buffer"}};
}

kernels::SgdStep values(OptimizerSpec const& spec, StepControl const& control) {
  kernels::SgdStep step;
  step.momentum = spec.value("momentum");
  step.dampening = spec.value("dampening");
  if (step.momentum != 0.0)
    step.momentum_form =
        spec.value("nesterov") != 0.0 ? kernels::Momentum::nesterov : kernels::Momentum::classical;
  step.first = control.step == 1;
  return step;
}

}  // namespace

OptimizerEntry sgd_entry() {
  return {{"SGD", {"sgd"}, rules(), {"momentum_buffer"}},
          states_of,
          make_elementwise<values, kernels::sgd>};
}

}  // namespace tessera::optim::detail
