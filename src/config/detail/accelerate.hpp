#pragma once
/// The configuration file of Hugging Face Accelerate: --accelerate_config.

#include <string>
#include <vector>

#include "tessera/config/option_values.hpp"

namespace tessera::config::detail {

/// The keys of the file.
OptionTable const& accelerate_table();

struct AccelerateConfig {
  OptionValues values;             ///< options of tessera-train that the file sets
  std::vector<std::string> notes;  ///< for the log
};

/// @throws ConfigError naming a key that is unknown, wrong or not supported
AccelerateConfig read_accelerate(ConfigTree const& document, std::string const& source);

}  // namespace tessera::config::detail
