#pragma once
/// Settings that are valid and often not what was meant.

#include <string>
#include <vector>

#include "tessera/config/resolved_config.hpp"

namespace tessera::config {

/// One line for each: what happens, and what to write instead.
std::vector<std::string> find_traps(TrainingArguments const& arguments,
                                    ResolvedConfig const& config);

}  // namespace tessera::config
