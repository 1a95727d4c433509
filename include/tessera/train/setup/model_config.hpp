#pragma once
/// The Hugging Face configuration of the model that a command line names.

#include <filesystem>

#include "tessera/config/arguments.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::train {

/// From --config_name, else --model_name_or_path, else the defaults of --model_type, with
/// --config_overrides.
/// @throws IoError when a named directory has no config.json; UsageError when no model is named or
/// overrides are given for a file
ConfigTree model_config(config::TrainingArguments const& arguments);

}  // namespace tessera::train
