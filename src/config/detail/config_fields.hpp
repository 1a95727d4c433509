#pragma once
/// The fields of a resolved configuration by name.

#include "tessera/config/resolved_config.hpp"

namespace tessera::config::detail {

/// As config::describe().
ConfigTree describe_fields(ResolvedConfig const& config);

}  // namespace tessera::config::detail
