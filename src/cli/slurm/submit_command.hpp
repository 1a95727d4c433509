#pragma once
/// `tessera submit`: fills in a batch script and passes it to sbatch.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_submit(CLI::App& app);

}  // namespace tessera::cli
