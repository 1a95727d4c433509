#pragma once
/// The option table of tessera-train.

#include "tessera/config/option_table.hpp"

namespace tessera::config {

/// The table behind the command line.
OptionTable const& argument_table();

}  // namespace tessera::config
