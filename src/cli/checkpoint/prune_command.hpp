#pragma once
/// `tessera checkpoint prune`: removes old checkpoints.

#include <CLI/CLI.hpp>
#include <string>

namespace tessera::cli {

/// Seconds of "90", "30m", "12h", "7d" or "2w"; 0 for an empty text. @throws UsageError
double age_seconds(std::string const& text);

/// Adds the subcommand to `tessera checkpoint`.
void add_prune(CLI::App& group);

}  // namespace tessera::cli
