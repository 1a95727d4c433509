#pragma once
/// Checks of command-line values, with messages that quote the value.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tessera::cli {

/// A number of at least @p low.
CLI::Validator number_from(double low);
/// A number from @p low to @p high.
CLI::Validator number_from(double low, double high);
/// One of @p words; the message names the nearest one.
CLI::Validator one_of(std::vector<std::string> words);

}  // namespace tessera::cli
