#pragma once
/// The keys of zero_optimization that name groups of ranks: MiCS and hpZ.

#include <functional>
#include <string>

#include "tessera/config/option_table.hpp"
#include "tessera/config/resolved_config.hpp"

namespace tessera::config::detail {

void add_groups(OptionTable& table);

/// After the stage is resolved. Sizes are checked when the number of ranks is known
/// (place_on_nodes).
/// @param written the value of a key that is neither missing nor "auto", else null
/// @throws ConfigError naming keys that cannot be together, and what to change
void resolve_groups(std::function<ConfigTree const*(std::string const& key)> const& written,
                    std::string const& source, ResolvedConfig& config);
/// resolve_groups() and resolve_quantization().
void resolve_communication(std::function<ConfigTree const*(std::string const& key)> const& written,
                           std::string const& source, ResolvedConfig& config);

}  // namespace tessera::config::detail
