#pragma once
/// `tessera bench-comm`: times collective operations under srun or mpirun.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_bench_comm(CLI::App& app);

}  // namespace tessera::cli
