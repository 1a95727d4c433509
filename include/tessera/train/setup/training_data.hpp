#pragma once
/// The data of a run: tokenizer, the cached packed sequences that the ranks of a node share, and
/// the order of the training samples.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/data/sampling/sampler.hpp"
#include "tessera/data/sequences/text_dataset.hpp"
#include "tessera/data/tokenizer/tokenizer.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/model/layers/documents.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/train/setup/model_source.hpp"

namespace tessera::train {

/// The data sets of a run.
struct TrainingData {
  std::shared_ptr<data::Tokenizer> tokenizer;  ///< on one rank of each node only
  std::optional<data::TokenSequences> train, evaluation, test;
  ConfigTree identity;  ///< identity of texts and tokenizer by content, for checkpoints; on rank 0
};

/// The files named by --train_file, --validation_file and --test_file as sequences, and the
/// tokenizer that the model source names. Rank 0 tokenizes, so that nodes which share the directory
/// do it once; then one rank of each node builds what its node cannot read, and passes the open
/// file to the others. Collective.
/// @throws UsageError when a name is missing, ConfigError for a block size that the model has no
/// positions for, IoError, DataError
TrainingData load_training_data(config::TrainingArguments const& arguments,
                                ModelSource const& source, model::CausalLm const& model,
                                topology::MpiSession const& session, comm::Collectives& comm);

/// How the model treats documents in a row: --reset_attention_mask, --reset_position_ids,
/// --eod_mask_loss, and the eos_token of @p tokenizer. Collective.
/// @throws UsageError without a tokenizer, ConfigError when it names no eos_token
model::DocumentOptions find_document_options(config::TrainingArguments const& arguments,
                                             std::filesystem::path const& tokenizer,
                                             comm::Collectives& comm);

/// @param samples of the training data
/// group_by_length takes its order from `seed`, the other random orders from `data_seed`, else from
/// `seed`, as Trainer does.
data::SamplerConfig sampler_config(config::TrainingArguments const& arguments,
                                   config::ResolvedConfig const& config, std::int64_t samples,
                                   int ranks);

}  // namespace tessera::train
