#pragma once
/// The fields of a resolved configuration by name.

#include "tessera/config/resolved_config.hpp"

namespace tessera::config::detail {

/// As config::describe().
ConfigTree describe_fields(ResolvedConfig const& config);

/// The values that only flags set, not DeepSpeed's keys.
void copy_arguments(TrainingArguments const& arguments, ResolvedConfig& config);

}  // namespace tessera::config::detail
