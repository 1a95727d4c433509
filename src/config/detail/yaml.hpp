#pragma once
/// YAML documents, as Accelerate writes its configuration.

#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/core/config_tree.hpp"

namespace tessera::config::detail {

/// Mappings, sequences and scalars of YAML 1.1; plain scalars become null, booleans or numbers as
/// in PyYAML. Refuses duplicate keys, anchors, several documents and nesting deeper than 64.
/// @throws DataError with line and column
ConfigTree parse_yaml(std::string_view text, std::string const& source);
/// @throws IoError if the file cannot be read
ConfigTree read_yaml(std::filesystem::path const& file);

}  // namespace tessera::config::detail
