#pragma once
/// The option table of tessera-train, and the texts that come from it.

#include <string>

#include "tessera/config/option_table.hpp"

namespace tessera::config {

/// The table behind the command line.
OptionTable const& argument_table();

/// Text of --help and of docs/reference/options.md.
std::string arguments_help();
std::string arguments_page();

}  // namespace tessera::config
