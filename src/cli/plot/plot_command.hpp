#pragma once
/// `tessera plot`: draws the loss curve of a run.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_plot(CLI::App& app);

}  // namespace tessera::cli
