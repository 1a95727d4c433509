#pragma once
/// Numbers in text.

#include <string>

#include "tessera/core/config_tree.hpp"

namespace tessera::config::detail {

/// The integer or the number that @p text spells completely, with or without a plus sign; null for
/// other text.
ConfigTree number_from(std::string const& text);

}  // namespace tessera::config::detail
