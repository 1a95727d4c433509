#pragma once
/// `tessera launch`: the arguments of DeepSpeed's launcher as an srun or mpirun command.

#include <optional>
#include <string>
#include <vector>

#include "command.hpp"
#include "launch/launch_plan.hpp"

namespace tessera::cli {

/// The command that the ranks run. `run_clm.py ARGS` becomes `TRAINER ARGS`; other words are a
/// program with its arguments, or the arguments of @p trainer.
/// @throws UsageError for any other Python program
std::vector<std::string> command_words(std::vector<std::string> words, std::string const& trainer);

/// Nodes or ranks per node as DeepSpeed, torchrun and users write them: "4"; nothing for "-1",
/// "auto", "gpu" and "cpu", which mean all. @throws UsageError for torchrun's ranges such as "1:4"
std::optional<int> count_of(std::string const& text, std::string const& option);

/// Sets the launcher: srun inside a Slurm job, else that of the build's MPI in PATH.
/// @returns false when there is none
bool choose_launcher(LaunchRequest& request, bool inside_slurm);

void add_launch(Command& app);

}  // namespace tessera::cli
