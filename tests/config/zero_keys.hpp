#pragma once
/// Keys of zero_optimization in a DeepSpeed file, resolved for 4 ranks.

#include <string>

#include "error_of.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {

/// @param zero members of zero_optimization, without its braces
inline ResolvedConfig resolved_zero(std::string const& zero) {
  return resolve(parse_options({"--deepspeed", concat(R"({"zero_optimization": {)", zero, "}}")}),
                 4, 64);
}
/// The message with which they are refused.
inline std::string refusal_of_zero(std::string const& zero) {
  return error_of<ConfigError>([&] { resolved_zero(zero); });
}

}  // namespace tessera::config::detail
