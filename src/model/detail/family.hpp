#pragma once
/// A model family as the registry knows it.

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/model/causal_lm.hpp"

namespace tessera::model::detail {

struct Family {
  std::string_view model_type;
  /// Complete config.json with Hugging Face's defaults.
  ConfigTree (*default_config)();
  /// Other spellings of fields: (alias, field), as in the config class's attribute_map.
  std::vector<std::pair<std::string_view, std::string_view>> aliases;
  /// @param config complete, aliases resolved
  std::unique_ptr<CausalLm> (*make)(ConfigTree config, Dtype dtype);
};

}  // namespace tessera::model::detail
