#pragma once
/// The options of DeepSpeed's zero_optimization block.

#include "tessera/config/option_table.hpp"

namespace tessera::config::detail {

// Texts that the options of other blocks use, too.
inline constexpr char const* by_default = "the default";
inline constexpr char const* same_result = "no effect: the result is the same";

/// Adds the groups "ZeRO" and "ZeRO: offloading and variants".
void add_zero_optimization(OptionTable& t);

}  // namespace tessera::config::detail
