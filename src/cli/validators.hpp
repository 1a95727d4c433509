#pragma once
/// Checks of command-line values, with messages that quote the value; what a login node can check
/// of a training's arguments before the job is queued; and errors of the command line in the user's
/// own words.

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/config/arguments.hpp"

namespace tessera::cli {

/// A number of at least @p low.
CLI::Validator number_from(double low);
/// A number from @p low to @p high.
CLI::Validator number_from(double low, double high);
/// One of @p words; the message names the nearest one.
CLI::Validator one_of(std::vector<std::string> words);

/// What is wrong with @p words, the arguments that @p app has refused with @p error: the word, the
/// nearest name, and the --help of the command that was called.
std::string usage_error(CLI::App const& app, std::vector<std::string> const& words,
                        CLI::ParseError const& error);

/// The model's hidden size where its config.json can be read here; 0: unknown.
std::int64_t known_hidden_size(config::TrainingArguments const& arguments);

/// Resolves the words of tessera-train as its start does, and looks for its input files.
/// @param ranks  0: unknown; batch sizes are then not compared with it
/// @throws UsageError, ConfigError, DataError, IoError as tessera-train would
void check_training_arguments(std::vector<std::string> const& words, int ranks);

}  // namespace tessera::cli
