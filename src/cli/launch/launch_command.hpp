#pragma once
/// `tessera launch`: the arguments of DeepSpeed's launcher as an srun or mpirun command.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tessera::cli {

/// The command that the ranks run. `run_clm.py ARGS` becomes `TRAINER ARGS`; other words are a
/// program with its arguments, or the arguments of @p trainer.
std::vector<std::string> command_words(std::vector<std::string> words, std::string const& trainer);

void add_launch(CLI::App& app);

}  // namespace tessera::cli
