#pragma once
/// The command-line options of other launchers and sharding libraries.

#include "tessera/config/option_table.hpp"

namespace tessera::config::detail {

void add_launcher_options(OptionTable& t);

}  // namespace tessera::config::detail
