#pragma once
/// The Hugging Face configuration of the model that a command line names.

#include <filesystem>
#include <memory>

#include "tessera/config/arguments.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/model/decoder/causal_lm.hpp"

namespace tessera::train {

/// From --config_name, else --model_name_or_path, else the defaults of --model_type, with
/// --config_overrides.
/// @throws IoError when a named directory has no config.json; UsageError when no model is named or
/// overrides are given for a file
ConfigTree model_config(config::TrainingArguments const& arguments);

/// The model, for its parameters and complete configuration; null where its configuration is
/// refused or belongs to a model that a program adds.
std::unique_ptr<model::CausalLm> known_model(ConfigTree const& config);

/// The configuration with `tie_word_embeddings` false where the weights in the directory @p weights
/// have a head with other values than the embedding, as transformers 5 does with a warning.
ConfigTree keep_stored_head(ConfigTree config, std::filesystem::path const& weights);

}  // namespace tessera::train
