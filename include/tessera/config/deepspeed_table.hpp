#pragma once
/// The table of DeepSpeed's configuration keys, and its page of the reference.

#include <string>

#include "tessera/config/option_table.hpp"

namespace tessera::config {

/// The table of all DeepSpeed keys, names as dotted paths.
OptionTable const& deepspeed_table();

/// Text of docs/reference/deepspeed-config.md.
std::string deepspeed_page();

}  // namespace tessera::config
