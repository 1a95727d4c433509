#pragma once
/// `tessera launch`: the arguments of DeepSpeed's launcher as an srun or mpirun command.

#include <CLI/CLI.hpp>

namespace tessera::cli {

void add_launch(CLI::App& app);

}  // namespace tessera::cli
