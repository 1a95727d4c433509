#pragma once
/// The options of the DeepSpeed JSON: the block zero_optimization with its keys for groups of ranks
/// (MiCS, hpZ) and quantized communication (ZeRO++ qwZ and qgZ, LoCo), and the blocks besides
/// batch, optimizer and precision.

#include <string>
#include <vector>

#include "tessera/config/offload.hpp"
#include "tessera/config/option_table.hpp"
#include "tessera/config/resolved_config.hpp"

namespace tessera::config::detail {

// Texts that the options of other blocks use, too.
inline constexpr char const* same_result = "no effect: the result is the same";

/// Adds the groups "ZeRO" and "ZeRO: offloading and variants".
void add_zero_optimization(OptionTable& t);

/// The keys of zero_optimization that name groups of ranks: MiCS and hpZ.
void add_groups(OptionTable& table);

/// Resolves groups after the stage. Sizes are checked when the number of ranks is known
/// (place_on_nodes).
/// @throws ConfigError naming keys that cannot be together, and what to change
void resolve_groups(DeepSpeedConfig const& json, ResolvedConfig& config);
/// resolve_groups() and resolve_quantization().
void resolve_communication(DeepSpeedConfig const& json, ResolvedConfig& config);

/// The keys of zero_optimization that quantize communication: ZeRO++ qwZ and qgZ, LoCo.
void add_quantization(OptionTable& table);

/// After the stage and the groups are resolved.
/// @throws ConfigError naming keys that cannot be together, and what to change
void resolve_quantization(DeepSpeedConfig const& json, ResolvedConfig& config);

/// Adds the groups from "Disk" to "Other features of DeepSpeed".
void add_deepspeed_blocks(OptionTable& t);

/// Adds zero_optimization.offload_param and offload_optimizer.
void add_offload(OptionTable& table);
/// Adds the group "Disk": the block "aio".
void add_aio(OptionTable& table);

struct ResolvedOffload {
  Offload offload;
  std::vector<std::string> notes;
};

/// @throws ConfigError naming keys that cannot be together, and what to change
ResolvedOffload resolve_offload(DeepSpeedConfig const& json, std::int64_t stage);

}  // namespace tessera::config::detail
