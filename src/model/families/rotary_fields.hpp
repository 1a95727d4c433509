#pragma once
/// Rotary positions of a Hugging Face config.json, as transformers 5 writes them
/// (`rope_parameters`) and as transformers 4 does (`rope_theta`, `rope_scaling`).

#include <string_view>

#include "tessera/core/config_tree.hpp"
#include "tessera/kernels/attention/rotary_tables.hpp"

namespace tessera::model::detail {

/// What a family says about its fields.
struct RotaryFields {
  int head_dim = 0;
  std::string_view theta = "rope_theta";  ///< of transformers 4, as the following
  std::string_view partial = "partial_rotary_factor";
  double partial_default = 1.0;  ///< part of a head that is rotated
  /// Names of the scaling: in Phi-3 "su" and "yarn" are older names of longrope, which is its only
  /// scaling; in other families "yarn" is YaRN and "su" is nothing.
  enum class Names { general, phi3 } names = Names::general;
};

/// @throws ConfigError naming a field that is unsupported, missing or of the wrong type
kernels::RotaryOptions read_rotary(ConfigTree const& config, RotaryFields const& of);

/// Most positions in a row: max_position_embeddings, or what dynamic scaling extends it to.
std::int64_t max_positions(ConfigTree const& config, kernels::RotaryOptions const& rotary);

/// The fields of transformers 4. Where a file has one of them, the default of rope_parameters does
/// not count.
bool has_older_rotary_fields(ConfigTree const& config);

}  // namespace tessera::model::detail
