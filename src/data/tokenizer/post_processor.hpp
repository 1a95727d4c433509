#pragma once
/// The post_processor of tokenizer.json: the special tokens around a text.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::data::detail {

struct TemplateIds {
  std::vector<std::int32_t> prefix, suffix;
};

/// @param where names the field in messages. @throws DataError (malformed) or ConfigError (not
/// supported).
TemplateIds read_post_processor(ConfigTree const& tree, std::string const& where);

}  // namespace tessera::data::detail
