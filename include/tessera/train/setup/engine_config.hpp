#pragma once
/// The settings of engine and model, from a resolved configuration.

#include "tessera/config/resolved_config.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

/// How the model computes.
model::ModelOptions model_options(config::ResolvedConfig const& config);

/// What the ZeRO engine reads.
zero::EngineConfig engine_config(config::ResolvedConfig const& config);

}  // namespace tessera::train
