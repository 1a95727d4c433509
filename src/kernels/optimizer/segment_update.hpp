#pragma once
/// The launch of an element-wise rule on segments.

#include "optimizer/optimizer_update.hpp"
#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::kernels::detail {

/// @throws InternalError for a segment without the memory that @p Rule needs
template <class Rule>
void check_segments(ElementwiseUpdate const& step, char const* name) {
  for (auto const& s : step.segments) {
    bool complete = s.numel > 0 && s.master && s.gradient;
    for (std::size_t k = 0; k < Rule::states; ++k) complete = complete && s.states[k];
    TESSERA_VALIDATE(s.numel == 0 || complete, InternalError, name, " got a segment of ", s.numel,
                     " elements without its weights, states or gradient");
  }
}

/// Enqueues the update of all segments: one traversal of every array. @p rates_of(segment) gives
/// Rule::Rates.
template <class Rule, class RatesOf>
void launch_segments(Queue& q, char const* name, ElementwiseUpdate const& step,
                     typename Rule::Coefficients const& coefficients, RatesOf const& rates_of) {
  static_assert(Rule::states <= UpdateSegment::max_states);
  check_segments<Rule>(step, name);
  UpdateStep<Rule> update{
      name,
      coefficients,
      step.control,
      {step.gradient_dtype, step.weights_dtype, step.master_dtype, step.state_dtype},
      {}};
  update.runs.reserve(step.segments.size());
  for (auto const& s : step.segments) {
    UpdateRun<Rule> run{};
    run.master = s.master;
    for (std::size_t k = 0; k < Rule::states; ++k) run.states[k] = s.states[k];
    run.gradient = s.gradient;
    run.weights_out = s.weights_out;
    run.numel = s.numel;
    run.rates = rates_of(s);
    update.runs.push_back(run);
  }
  launch_update(q, update);
}

}  // namespace tessera::kernels::detail
