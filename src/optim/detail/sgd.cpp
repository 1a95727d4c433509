#include "detail/sgd.hpp"

#include "tessera/core/error.hpp"
#include "tessera/kernels/sgd.hpp"

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

class Sgd final : public Optimizer {
 public:
  explicit Sgd(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }

  void update(memory::Queue& queue, Segments const& segments,
              StepControl const& control) const override {
    auto step = step_of(control);
    step.gradient_dtype = segments.gradient_dtype;
    step.weights_dtype = segments.weights_dtype;
    step.segments.reserve(segments.list.size());
    for (auto const& s : segments.list)
      step.segments.push_back(
          {s.master, s.states.empty() ? nullptr : static_cast<float*>(s.states[0]), s.gradient,
           s.weights_out, s.numel, control.learning_rate, spec_.value("weight_decay", s.group)});
    if (!step.segments.empty()) kernels::sgd(queue, step);
  }

 private:
  kernels::SgdStep step_of(StepControl const& control) const {
    kernels::SgdStep step;
    step.momentum = spec_.value("momentum");
    step.dampening = spec_.value("dampening");
    if (step.momentum != 0.0)
      step.momentum_form = spec_.value("nesterov") != 0.0 ? kernels::Momentum::nesterov
                                                          : kernels::Momentum::classical;
    step.first = control.step == 1;
    step.control = control.gradients;
    return step;
  }

  OptimizerSpec spec_;
};

std::unique_ptr<Optimizer> make(OptimizerSpec const& spec) { return std::make_unique<Sgd>(spec); }

}  // namespace

OptimizerEntry sgd_entry() {
  return {{"SGD", {"sgd"}, rules(), {"momentum_buffer"}}, states_of, make};
}

}  // namespace tessera::optim::detail
