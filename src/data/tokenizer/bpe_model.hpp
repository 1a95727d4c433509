#pragma once
/// Reads and validates a BPE model: the vocabulary and the merges, from the model of tokenizer.json
/// or from vocab.json and merges.txt.

#include <cstdint>
#include <string>
#include <unordered_map>

#include "tessera/core/config_tree.hpp"
#include "tokenizer/bpe.hpp"

namespace tessera::data::detail {

/// Far above any vocabulary; bounds the memory that a damaged file can request.
constexpr std::int64_t max_token_id = (std::int64_t{1} << 22) - 1;

/// An integer from 0 to max_token_id.
bool is_token_id(ConfigTree const& value);

/// Adds the tokens of an object {token: id}. @throws DataError for an id out of range or used
/// twice.
void read_vocabulary(ConfigTree const& tree, std::string const& where,
                     std::unordered_map<std::string, std::int32_t>& out);

struct BpeModel {
  std::unordered_map<std::string, std::int32_t> vocabulary;  ///< as written
  BpeTables tables;
};

/// @param symbols bytes if the pre_tokenizer is byte-level
/// @param where names the field in messages. @throws DataError (malformed) or ConfigError (not a
/// BPE model that Tessera reads).
BpeModel read_bpe_model(ConfigTree const& model, Symbols symbols, std::string const& where);

/// The same from the trees and texts of vocab.json and merges.txt; the names are for messages.
struct BpeFiles {
  ConfigTree vocabulary;
  std::string vocabulary_name;
  std::string merges, merges_name;
};
BpeModel read_bpe_files(BpeFiles const& files);

}  // namespace tessera::data::detail
