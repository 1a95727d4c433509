#pragma once
/// `tessera launch`: the arguments of DeepSpeed's launcher as an srun or mpirun command.

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

/// The command that the ranks run. `run_clm.py ARGS` becomes `TRAINER ARGS`; other words are a
/// program with its arguments, or the arguments of @p trainer.
/// @throws UsageError for any other Python program
std::vector<std::string> command_words(std::vector<std::string> words, std::string const& trainer);

/// The words of `tessera launch` with "--" between its options and the program, whose options may
/// have the same names. @throws UsageError for an option before the program that @p launch lacks
std::vector<std::string> separate_program(CLI::App const& launch, std::vector<std::string> words);

/// All words of `tessera`: separate_program() where the command is launch.
std::vector<std::string> launch_words(CLI::App const& app, std::vector<std::string> words);

/// Words of plan, simulate, estimate, config check and config lr: options of tessera-train follow
/// "--", also where the user has not written it.
std::vector<std::string> with_training_options(CLI::App const& app, std::vector<std::string> words);

/// Nodes or ranks per node as DeepSpeed, torchrun and users write them: "4"; nothing for "-1",
/// "auto", "gpu" and "cpu", which mean all. @throws UsageError for torchrun's ranges such as "1:4"
std::optional<int> count_of(std::string const& text, std::string const& option);

void add_launch(CLI::App& app);

}  // namespace tessera::cli
