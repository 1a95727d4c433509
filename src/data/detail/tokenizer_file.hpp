#pragma once
/// What the files of a tokenizer say, checked and reduced to ids, bytes and patterns.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "detail/added_tokens.hpp"
#include "detail/bpe.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::data::detail {

/// One step of cutting text into words.
struct SplitRule {
  std::string pattern;    ///< empty: does not cut
  bool keep_gaps = true;  ///< text between matches is a piece too
  bool add_prefix_space =
      false;  ///< before cutting: a piece that does not begin with a space gets one
};

struct TokenizerFile {
  std::unordered_map<std::string, std::int32_t> vocabulary;  ///< as written, in the byte alphabet
  BpeTables bpe;
  std::vector<SplitRule> splits;
  std::vector<AddedToken> added;
  std::vector<std::int32_t> prefix_ids, suffix_ids;  ///< put around every text
  std::int64_t model_max_length = std::numeric_limits<std::int64_t>::max();
  std::int32_t bos_id = -1, eos_id = -1;
  std::uint64_t fingerprint = 0;
  std::vector<std::filesystem::path> files;
};

/// @throws IoError, DataError (malformed) or ConfigError (well-formed, but not a byte-level BPE
/// tokenizer).
TokenizerFile read_tokenizer_file(std::filesystem::path const& path);

/// The pieces of tokenizer.json that have a file of their own in the sources.
std::vector<SplitRule> read_pre_tokenizer(ConfigTree const& tree, std::string const& where);
struct TemplateIds {
  std::vector<std::int32_t> prefix, suffix;
};
TemplateIds read_post_processor(ConfigTree const& tree, std::string const& where);

}  // namespace tessera::data::detail
