#pragma once
/// The configuration file of Hugging Face Accelerate, --accelerate_config, and YAML documents as
/// Accelerate writes them.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace tessera::config::detail
