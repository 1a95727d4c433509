#pragma once
/// The bash completion of tessera and tessera-train, from the tables behind --help.

#include <CLI/CLI.hpp>
#include <string>

namespace tessera::cli {

/// A bash script. After a subcommand it completes that subcommand's words, else the program's, else
/// files.
std::string bash_completion(CLI::App const& app);

}  // namespace tessera::cli
