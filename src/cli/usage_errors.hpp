#pragma once
/// Errors of the command line in the user's own words.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tessera::cli {

/// What is wrong with @p words, the arguments that @p app has refused with @p error: the word, the
/// nearest name, and the --help of the command that was called.
std::string usage_error(CLI::App const& app, std::vector<std::string> const& words,
                        CLI::ParseError const& error);

}  // namespace tessera::cli
