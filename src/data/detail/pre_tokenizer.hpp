#pragma once
/// The pre_tokenizer of tokenizer.json: the steps that split text into words.

#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::data::detail {

/// One step of splitting.
struct SplitRule {
  std::string pattern;            ///< regular expression of the words; empty: does not split
  bool keep_gaps = true;          ///< text between matches is a word too
  bool add_prefix_space = false;  ///< a text that does not begin with a space gets one first
};

/// @param where names the field in messages. @throws DataError (malformed) or ConfigError (not
/// supported).
std::vector<SplitRule> read_pre_tokenizer(ConfigTree const& tree, std::string const& where);

}  // namespace tessera::data::detail
