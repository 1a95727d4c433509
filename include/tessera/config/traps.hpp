#pragma once
/// Settings that are valid and often not what was meant.

#include <string>
#include <vector>

#include "tessera/config/resolved_config.hpp"

namespace tessera::config {

/// Whether the world size of a configuration is that of the run or a guess.
enum class WorldSize { known, assumed };

/// One line for each: what happens, and what to write instead. An assumed world size is no trap.
std::vector<std::string> find_traps(TrainingArguments const& arguments,
                                    ResolvedConfig const& config,
                                    WorldSize world_size = WorldSize::known);

}  // namespace tessera::config
