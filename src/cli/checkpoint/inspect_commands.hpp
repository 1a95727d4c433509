#pragma once
/// `tessera checkpoint ls`, `info` and `verify`: what checkpoints contain.

#include <CLI/CLI.hpp>

namespace tessera::cli {

/// Adds the subcommands to `tessera checkpoint`.
void add_inspect_commands(CLI::App& group);

}  // namespace tessera::cli
