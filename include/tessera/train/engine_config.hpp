#pragma once
/// The ZeRO engine's settings, from a resolved configuration.

#include "tessera/config/resolved_config.hpp"
#include "tessera/zero/engine.hpp"

namespace tessera::train {

/// What the ZeRO engine reads.
zero::EngineConfig engine_config(config::ResolvedConfig const& config);

}  // namespace tessera::train
