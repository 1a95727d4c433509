#pragma once
/// `tessera checkpoint diff`: compares two checkpoints tensor by tensor.

#include <CLI/CLI.hpp>

namespace tessera::cli {

/// Adds the subcommand to `tessera checkpoint`.
void add_diff(CLI::App& group);

}  // namespace tessera::cli
