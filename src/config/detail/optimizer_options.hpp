#pragma once
/// The command-line options of the optimizer and the learning-rate schedule.

#include "tessera/config/option_table.hpp"

namespace tessera::config::detail {

/// Adds the group "Optimizer and schedule".
void add_optimizer_options(OptionTable& t);

}  // namespace tessera::config::detail
