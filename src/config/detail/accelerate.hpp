#pragma once
/// The configuration file of Hugging Face Accelerate, --accelerate_config; FSDP's names for what
/// the ZeRO stages do, --fsdp and --fsdp_config; and YAML documents as Accelerate writes them.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config/arguments.hpp"
#include "tessera/config/option_values.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::config::detail {

/// The keys of the file.
OptionTable const& accelerate_table();

struct AccelerateConfig {
  OptionValues values;             ///< options of tessera-train that the file sets
  std::vector<std::string> notes;  ///< for the log
};

/// @throws ConfigError naming a key that is unknown, wrong or not supported
AccelerateConfig read_accelerate(ConfigTree const& document, std::string const& source);

/// Mappings, sequences and scalars of YAML 1.1; plain scalars become null, booleans or numbers as
/// in PyYAML. Refuses duplicate keys, anchors, several documents and nesting deeper than 64.
/// @throws DataError with line and column
ConfigTree parse_yaml(std::string_view text, std::string const& source);
/// @throws IoError if the file cannot be read
ConfigTree read_yaml(std::filesystem::path const& file);

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
