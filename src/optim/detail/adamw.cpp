#include "detail/adamw.hpp"

#include <cmath>

#include "tessera/kernels/adamw.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> rules() {
  return {{"beta1", 0.9, Range::unit, "decay of the mean of the gradients"},
          {"beta2", 0.999, Range::unit, "decay of the mean of their squares"},
          {"eps", 1e-8, Range::positive, "added to the root of the mean square"},
          {"weight_decay", 0.0, Range::not_negative, "weight decay"},
          {"bias_correction", 1.0, Range::flag, "divide the means by 1 - beta^t"}};
}

std::vector<StateSpec> states_of(OptimizerSpec const&) { return {{"exp_avg"}, {"exp_avg_sq"}}; }

class AdamW final : public Optimizer {
 public:
  explicit AdamW(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }

  void update(memory::Queue& queue, Segments const& segments,
              StepControl const& control) const override {
    auto step = step_of(control);
    step.gradient_dtype = segments.gradient_dtype;
    step.weights_dtype = segments.weights_dtype;
    step.segments.reserve(segments.list.size());
    for (auto const& s : segments.list)
      step.segments.push_back({s.master, static_cast<float*>(s.states[0]),
                               static_cast<float*>(s.states[1]), s.gradient, s.weights_out, s.numel,
                               control.learning_rate, spec_.value("weight_decay", s.group)});
    if (!step.segments.empty()) kernels::adamw(queue, step);
  }

 private:
  kernels::AdamWStep step_of(StepControl const& control) const {
    kernels::AdamWStep step;
    step.beta1 = spec_.value("beta1");
    step.beta2 = spec_.value("beta2");
    step.epsilon = spec_.value("eps");
    if (spec_.value("bias_correction") != 0.0) {
      auto const t = static_cast<double>(control.step);
      step.bias_correction1 = 1.0 - std::pow(step.beta1, t);
      step.bias_correction2 = 1.0 - std::pow(step.beta2, t);
    }
    step.adam_l2 = spec_.algorithm == "Adam";
    step.control = control.gradients;
    return step;
  }

  OptimizerSpec spec_;
};

std::unique_ptr<Optimizer> make(OptimizerSpec const& spec) { return std::make_unique<AdamW>(spec); }

}  // namespace

OptimizerEntry adamw_entry() {
  return {{"AdamW",
           {"adamw_torch_fused", "adamw_torch", "adamw_hf", "adamw_apex_fused", "adamw_torch_xla",
            "adamw_torch_npu_fused"},
           rules(),
           {"exp_avg", "exp_avg_sq"}},
          states_of,
          make};
}
OptimizerEntry adam_entry() {
  return {{"Adam", {}, rules(), {"exp_avg", "exp_avg_sq"}}, states_of, make};
}

}  // namespace tessera::optim::detail
