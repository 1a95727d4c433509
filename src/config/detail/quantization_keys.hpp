#pragma once
/// The keys of zero_optimization that quantize communication: ZeRO++ qwZ and qgZ, LoCo.

#include <functional>
#include <string>

#include "tessera/config/option_table.hpp"
#include "tessera/config/resolved_config.hpp"

namespace tessera::config::detail {

void add_quantization(OptionTable& table);

/// After the stage and the groups are resolved.
/// @param written the value of a key that is neither missing nor "auto", else null
/// @throws ConfigError naming keys that cannot be together, and what to change
void resolve_quantization(std::function<ConfigTree const*(std::string const& key)> const& written,
                          std::string const& source, ResolvedConfig& config);

}  // namespace tessera::config::detail
