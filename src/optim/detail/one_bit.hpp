#pragma once
/// OneBitAdam, and what the other optimizers that exchange signs share with it.

#include <cstddef>
#include <vector>

#include "detail/elementwise.hpp"
#include "detail/optimizer_table.hpp"
#include "tessera/optim/compression.hpp"

namespace tessera::optim::detail {

OptimizerEntry one_bit_adam_entry();

/// beta1, beta2, eps and weight_decay.
std::vector<HyperparameterRule> one_bit_rules();

/// @p states and those of the errors of compression.
std::vector<StateSpec> with_errors(std::vector<StateSpec> states);
/// The same segments with only some of the states, by their places in the list.
Segments with_states(Segments segments, std::vector<std::size_t> const& kept);
/// The same elements without padding, with what the ranks have exchanged in the place of the
/// gradients.
Segments with_gradients(Segments segments, Exchange const& exchange);

/// The warm-up: Adam without bias correction.
/// @pre exp_avg and exp_avg_sq are the first states
void update_as_adam(memory::Queue& queue, OptimizerSpec const& spec, Segments const& segments,
                    StepControl const& control);

/// A step of these optimizers' kernels on @p segments.
template <class Step>
Step one_bit_step(OptimizerSpec const& spec, Segments const& segments, StepControl const& control) {
  Step step;
  step.beta1 = spec.value("beta1");
  step.epsilon = spec.value("eps");
  set_segments(step, spec, segments, control);
  return step;
}

}  // namespace tessera::optim::detail
