#pragma once
/// `tessera estimate`: memory before training, by DeepSpeed's formulas and by planning a run.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_estimate(CLI::App& app);

}  // namespace tessera::cli
