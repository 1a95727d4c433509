#pragma once
/// The model families, by the model_type of a Hugging Face config.json.

#include <memory>
#include <string>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/model/causal_lm.hpp"

namespace tessera::model {

/// Builds a model from a Hugging Face config.json.
/// @param dtype of weights and activations
/// @throws ConfigError naming model_type or the field that is missing, unsupported or contradictory
std::unique_ptr<CausalLm> make_model(ConfigTree const& hf_config, Dtype dtype);

/// run_clm's --config_overrides "n_embd=256,n_layer=4" applied to a configuration; values take the
/// type of the field they replace.
ConfigTree apply_overrides(ConfigTree config, std::string const& overrides);

/// The hidden size in a Hugging Face config.json, without building the model; 0: it names none.
std::int64_t hidden_size(ConfigTree const& hf_config);

/// Default config.json of a model_type, as Hugging Face's config class has it.
ConfigTree default_config(std::string const& model_type);

}  // namespace tessera::model
