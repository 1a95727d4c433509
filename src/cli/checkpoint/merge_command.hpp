#pragma once
/// `tessera merge`: a model and its adapter become one model directory.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_merge(CLI::App& app);

}  // namespace tessera::cli
