#pragma once
/// The bash completion of tessera and tessera-train, from the tables behind --help.

#include <CLI/CLI.hpp>
#include <string>

namespace tessera::cli {

/// A bash script. It completes the words of a subcommand, otherwise those of the program, otherwise
/// files.
std::string bash_completion(CLI::App const& app);

}  // namespace tessera::cli
