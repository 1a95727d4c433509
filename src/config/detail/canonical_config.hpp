#pragma once
/// Old spellings of the DeepSpeed JSON in their current form.

#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::config::detail {

struct CanonicalConfig {
  ConfigTree tree;
  std::vector<std::string> notes;  ///< one line per deprecated key
};

/// Translates "zero_optimization": true, bfloat16, cpu_offload, optimizer names in any case, and
/// lists of equal rates. @p source names the file in messages.
/// @throws ConfigError when an old and the current name are both given, or a section lacks its type
CanonicalConfig canonical_config(ConfigTree tree, std::string const& source);

}  // namespace tessera::config::detail
