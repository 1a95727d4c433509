#pragma once
/// What a login node can check of a training's arguments before the job is queued.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/config/arguments.hpp"

namespace tessera::cli {

/// The model's hidden size where its config.json can be read here; 0: unknown.
std::int64_t known_hidden_size(config::TrainingArguments const& arguments);

/// Resolves the words of tessera-train as its start does, and looks for its input files.
/// @param ranks  0: unknown; batch sizes are then not compared with it
/// @throws UsageError, ConfigError, DataError, IoError as tessera-train would
void check_training_arguments(std::vector<std::string> const& words, int ranks);

}  // namespace tessera::cli
