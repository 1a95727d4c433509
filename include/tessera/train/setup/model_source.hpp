#pragma once
/// Where a run's model comes from: a Hugging Face directory with weights, only a configuration, or
/// the defaults of a model type.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/model/layers/lora.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

/// What is known of the weights that the run started from.
struct WeightsOrigin {
  std::string directory;                   ///< Hugging Face directory; empty: random weights
  std::optional<Dtype> stored_dtype = {};  ///< dtype of the weights in it
  std::string problem = {};  ///< values that the run's dtype cannot hold, by tensor; empty: none
};

/// The rules of run_clm.py: --model_name_or_path gives configuration and weights, --config_name
/// another configuration; without both the defaults of --model_type with --config_overrides, from
/// random weights.
struct ModelSource {
  ConfigTree config;                        ///< Hugging Face config.json, overrides applied
  std::filesystem::path weights_directory;  ///< empty: random initial weights
  std::filesystem::path
      tokenizer_directory;  ///< directory of --tokenizer_name, else of the model; empty: none given
  WeightsOrigin weights;
  std::optional<model::LoraOptions> lora;   ///< the model is adapted
  std::filesystem::path adapter_directory;  ///< empty: adapters start as PEFT's
  model::ParameterChanges changes{};  ///< changes of the model, against the files of its family
  /// Rows of the embedding in the files, where the tokenizer has more tokens and the model gets a
  /// row for each, as in run_clm.py; 0: the model has the rows of its files.
  std::int64_t stored_vocabulary = 0;
};

/// Rank 0 reads the files and broadcasts the result. With weights, `vocab_size` is at least the
/// number of the tokenizer's tokens. @throws UsageError when nothing names a model, IoError /
/// DataError for files, ConfigError for --config_overrides without effect
ModelSource find_model(config::TrainingArguments const& arguments, comm::Collectives& comm);

/// Writes initial values of a range of a parameter: from the directories' weights, or random by
/// (seed, name, element). Rank 0 reads the headers of the files, one rank per node opens them for
/// all ranks of the node, and each rank reads only the elements of its shard. Sets
/// WeightsOrigin::stored_dtype from the files. Rows of the vocabulary that the files do not have
/// start at the mean of those that they have.
/// @throws DataError when a tensor is missing or its shape differs from the configuration's
zero::Engine::Fill initial_weights(ModelSource& source, std::vector<memory::UnitSpec> const& units,
                                   std::uint64_t seed, topology::MpiSession const& session,
                                   comm::Collectives& comm);

/// From --config_name, else --model_name_or_path, else the defaults of --model_type, with
/// --config_overrides.
/// @throws IoError when a named directory has no config.json; UsageError when no model is named or
/// overrides are given for a file
ConfigTree model_config(config::TrainingArguments const& arguments);

/// The model, for its parameters and complete configuration; null where its configuration is
/// refused or belongs to a model that a program adds.
std::unique_ptr<model::CausalLm> known_model(ConfigTree const& config);

/// The tokens of the tokenizer in a directory where they are more than the rows of the model's
/// embedding; else, or where either cannot be read, 0.
std::int64_t rows_for_tokens(ConfigTree const& config,
                             std::filesystem::path const& tokenizer_directory);

/// The configuration with `tie_word_embeddings` false where the weights in the directory @p weights
/// have a head with other values than the embedding, as transformers 5 does with a warning.
ConfigTree keep_stored_head(ConfigTree config, std::filesystem::path const& weights);

}  // namespace tessera::train
