#pragma once
/// The table of DeepSpeed's configuration keys.

#include "tessera/config/option_table.hpp"

namespace tessera::config {

/// The table of all DeepSpeed keys, names as dotted paths.
OptionTable const& deepspeed_table();

}  // namespace tessera::config
