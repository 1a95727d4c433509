#pragma once
/// Resolves the search for a fast configuration.

#include <optional>

#include "tessera/config/arguments.hpp"
#include "tessera/config/option_values.hpp"
#include "tessera/config/tuning.hpp"

namespace tessera::config::detail {

/// None: neither --auto_tune nor autotuning.enabled.
/// @param keys  of the DeepSpeed configuration; empty without one
/// @throws ConfigError for bounds that contradict each other
std::optional<Tuning> resolve_tuning(TrainingArguments const& arguments, OptionValues const& keys);

}  // namespace tessera::config::detail
