#pragma once
/// The settings of the stages of an EngineConfig, to be changed by tests.

#include "tessera/zero/layout/engine_config.hpp"

namespace tessera::test {

/// @pre stage 1, 2 or 3
inline zero::ShardedStates& states_of(zero::EngineConfig& config) {
  return *zero::edit<zero::ShardedStates>(config);
}
/// @pre stage 3
inline zero::ShardedWeights& weights_of(zero::EngineConfig& config) {
  return *zero::edit<zero::ShardedWeights>(config);
}
/// Gradients are reduced in the last micro-step; no effect below stage 2, where they are anyway.
inline void set_reduce_once(zero::EngineConfig& config) {
  if (auto* const gradients = zero::edit<zero::ShardedGradients>(config))
    gradients->reduce_once = true;
}
/// How far weights are gathered ahead; no effect below stage 3.
inline void set_prefetch(zero::EngineConfig& config, std::int64_t elements) {
  if (auto* const weights = zero::edit<zero::ShardedWeights>(config))
    weights->prefetch_bucket_size = elements;
}

}  // namespace tessera::test
