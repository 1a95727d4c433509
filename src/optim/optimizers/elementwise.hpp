#pragma once
/// Element-wise optimizers. Each is one rule: what `optimizer/optimizer_rule.hpp` of kernels asks
/// for, and on the host
///   static constexpr char const* name           of the kernel
///   static constexpr char const* state_names[]  in the order of the states of element()
///   static Coefficients coefficients(RuleStep)  with gradient_factor 1
///   static Rates rates(RuleStep, double weight_decay)
/// For states in 8 bits (quantized.hpp) a rule has
///   static constexpr char const* quantized_name
///   static constexpr kernels::DynamicMap maps[] of its states

#include "optimizer/segment_update.hpp"
#include "optimizers/segments.hpp"
#include "optimizers/table.hpp"

namespace tessera::optim::detail {

using kernels::detail::multiply_add;

/// What a rule computes its values of a step from.
struct RuleStep {
  OptimizerSpec const& spec;
  std::int64_t number;  ///< 1, 2, ...
  double learning_rate;

  /// @throws InternalError for step 0, which has no bias correction
  RuleStep(OptimizerSpec const& given, StepControl const& control)
      : spec(given), number(control.step), learning_rate(control.learning_rate) {
    TESSERA_VALIDATE(number > 0, InternalError, "optimizer ", spec.algorithm, " got step ", number,
                     "; steps count from 1");
  }
  double operator[](char const* hyperparameter) const { return spec.value(hyperparameter); }
  double value_or(char const* hyperparameter, double otherwise) const {
    return spec.has(hyperparameter) ? spec.value(hyperparameter) : otherwise;
  }
  /// 1 - beta^t
  double bias_correction(char const* beta) const {
    return detail::bias_correction(spec.value(beta), number);
  }
};

/// Coefficients are computed in double and rounded once.
inline float fp32(double x) { return static_cast<float>(x); }

/// Enqueues the update of all segments by @p Rule.
template <class Rule>
void update_elements(memory::Queue& queue, OptimizerSpec const& spec, Segments const& segments,
                     StepControl const& control) {
  if (segments.list.empty()) return;
  kernels::ElementwiseUpdate update;
  set_segments(update, spec, segments, control);
  RuleStep const step(spec, control);
  kernels::detail::launch_segments<Rule>(
      queue, Rule::name, update, Rule::coefficients(step),
      [&](kernels::UpdateSegment const& s) { return Rule::rates(step, s.weight_decay); });
}

template <class Rule>
class Elementwise final : public Optimizer {
 public:
  explicit Elementwise(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }
  void update(memory::Queue& queue, Segments const& segments,
              StepControl const& control) const override {
    update_elements<Rule>(queue, spec_, segments, control);
  }

 private:
  OptimizerSpec spec_;
};

/// The entry of an optimizer with one rule, which always has the states of the rule.
template <class Rule>
OptimizerEntry elementwise_entry(OptimizerInfo info) {
  info.states.assign(std::begin(Rule::state_names), std::end(Rule::state_names));
  auto const states = [](OptimizerSpec const&) {
    return std::vector<StateSpec>(std::begin(Rule::state_names), std::end(Rule::state_names));
  };
  return {std::move(info), states, make_as<Elementwise<Rule>>};
}

}  // namespace tessera::optim::detail
