#pragma once
/// The blocks of the DeepSpeed JSON besides batch, optimizer, precision and ZeRO.

#include "tessera/config/option_table.hpp"

namespace tessera::config::detail {

/// Adds the groups from "Disk" to "Other features of DeepSpeed".
void add_deepspeed_blocks(OptionTable& t);

}  // namespace tessera::config::detail
