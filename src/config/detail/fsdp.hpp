#pragma once
/// FSDP's names for what the ZeRO stages do: --fsdp and --fsdp_config.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/arguments.hpp"

namespace tessera::config::detail {

/// The keys of --fsdp_config, without their prefix "fsdp_".
OptionTable const& fsdp_table();

struct FsdpChoice {
  std::int64_t stage = 3;
  bool within_nodes = false;  ///< hybrid_shard: the states are shared by the ranks of a node
  bool activation_checkpointing = false;
  bool offloads = false;           ///< parameters to host memory
  std::vector<std::string> notes;  ///< for the log: the stage, and keys without an effect
};

/// None without --fsdp.
/// @throws UsageError for words of --fsdp, ConfigError for keys of --fsdp_config
std::optional<FsdpChoice> resolve_fsdp(TrainingArguments const& arguments);

}  // namespace tessera::config::detail
