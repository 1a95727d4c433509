#pragma once
/// The states that a checkpoint has next to the master weights.

#include <algorithm>

#include "tessera/zero/layout/engine_config.hpp"
#include "tessera/zero/layout/state_view.hpp"

namespace tessera::zero {

/// Returns the states of a checkpoint in the order of Engine::state(): those of the optimizer and,
/// with error feedback, the errors of quantized gradients.
inline optim::OptimizerSpec saved_states(EngineConfig const& config) {
  auto out = config.optimizer;
  auto const& gradients = settings<ShardedWeights>(config).quantized_gradients;
  if (!gradients || !gradients->feedback) return out;
  auto const first_reduced = std::find_if(out.states.begin(), out.states.end(), [](auto const& s) {
    return s.extent != optim::Extent::elementwise;
  });
  out.states.insert(first_reduced, optim::StateSpec{gradient_error_name});
  return out;
}

}  // namespace tessera::zero
