#pragma once
/// A model family as the registry knows it.

#include <string_view>
#include <utility>
#include <vector>

#include "decoder/description.hpp"
#include "families/fields.hpp"

namespace tessera::model::detail {

struct Family {
  std::string_view model_type;
  std::string_view architecture;  ///< Hugging Face's class with a language model head
  /// Text of a complete config.json with Hugging Face's defaults. Fields whose default depends on
  /// others are null.
  std::string_view default_config;
  /// Other spellings of fields: (alias, field), as in the config class's attribute_map.
  std::vector<std::pair<std::string_view, std::string_view>> aliases;
  /// @param config complete, aliases resolved
  /// @throws ConfigError naming a field that is missing, unsupported or contradictory
  DecoderDescription (*describe)(ConfigTree const& config);
};

}  // namespace tessera::model::detail
