#pragma once
/// The command-line options of training texts and of the order in which they are read.

#include "tessera/config/option_table.hpp"

namespace tessera::config::detail {

void add_data_options(OptionTable& t);

}  // namespace tessera::config::detail
