#pragma once
/// `tessera checkpoint view` and `convert`: change a checkpoint's files and keep its tensors.

#include <CLI/CLI.hpp>

namespace tessera::cli {

/// Adds the subcommands to `tessera checkpoint`.
void add_layout_commands(CLI::App& group);

}  // namespace tessera::cli
