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

#include <algorithm>

#include "optimizer/optimizer_update.hpp"
#include "optimizers/segments.hpp"
#include "optimizers/table.hpp"
#include "tessera/core/error.hpp"

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

/// @throws InternalError for a segment without the memory that @p Rule needs
template <class Rule>
void check_segment(Segment const& s, char const* name) {
  bool complete = s.numel > 0 && s.master && s.gradient && s.states.size() >= Rule::states;
  for (std::size_t k = 0; complete && k < Rule::states; ++k) complete = s.states[k];
  TESSERA_VALIDATE(s.numel == 0 || complete, InternalError, name, " got a segment of ", s.numel,
                   " elements without its weights, states or gradient");
}

/// Enqueues the update of all segments by @p Rule: one traversal of every array. @p
/// rates_of(step, index) gives the rates of a segment.
template <class Rule, class RatesOf>
void launch_rule(memory::Queue& queue, OptimizerSpec const& spec, Segments const& segments,
                 StepControl const& control, RatesOf const& rates_of) {
  if (segments.list.empty()) return;
  RuleStep const step(spec, control);
  kernels::detail::UpdateStep<Rule> update{
      Rule::name, Rule::coefficients(step), control.gradients, {}, {}};
  update.dtypes = {segments.gradient_dtype, segments.weights_dtype, segments.master_dtype};
  for (auto const& state : spec.states)
    if (state.is_plain()) update.dtypes.states = state.dtype;
  for (auto const& s : segments.list) {
    check_segment<Rule>(s, Rule::name);
    auto& run = update.runs.emplace_back();
    run.master = s.master;
    if (s.numel > 0) std::copy_n(s.states.begin(), Rule::states, run.states);
    run.gradient = s.gradient;
    run.weights_out = s.weights_out;
    run.numel = s.numel;
    run.rates = rates_of(step, static_cast<std::size_t>(&s - segments.list.data()));
  }
  launch_update(queue, update);
}

/// Enqueues the update of all segments by @p Rule, which has rates by weight decay.
template <class Rule>
void update_elements(memory::Queue& queue, OptimizerSpec const& spec, Segments const& segments,
                     StepControl const& control) {
  launch_rule<Rule>(queue, spec, segments, control, [&](RuleStep const& step, std::size_t i) {
    return Rule::rates(step, spec.value("weight_decay", segments.list[i].group));
  });
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
    std::vector<StateSpec> out;
    for (char const* const name : Rule::state_names) out.push_back({.name = name});
    return out;
  };
  return {std::move(info), states, make_as<Elementwise<Rule>>};
}

}  // namespace tessera::optim::detail
