#pragma once
/// Rows of the option table of tessera-train: training texts, optimizer and schedule, other
/// launchers.

#include "tessera/config/option_table.hpp"

namespace tessera::config::detail {

void add_data_options(OptionTable& t);

/// The command-line options of other launchers and sharding libraries.
void add_launcher_options(OptionTable& t);

/// Adds the group "Optimizer and schedule".
void add_optimizer_options(OptionTable& t);

}  // namespace tessera::config::detail
