#pragma once
/// Resolves what a run reports.

#include "tessera/config/arguments.hpp"
#include "tessera/config/option_values.hpp"
#include "tessera/config/reporting.hpp"

namespace tessera::config::detail {

/// @param keys  of the DeepSpeed configuration; empty without one
Reporting resolve_reporting(TrainingArguments const& arguments, OptionValues const& keys);

}  // namespace tessera::config::detail
