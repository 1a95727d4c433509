#pragma once
/// The group `tessera checkpoint`.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_checkpoint_commands(CLI::App& app);

}  // namespace tessera::cli
