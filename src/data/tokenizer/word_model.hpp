#pragma once
/// The member `model` of tokenizer.json, of every type.

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "tessera/core/config_tree.hpp"
#include "tokenizer/bpe.hpp"

namespace tessera::data::detail {

struct WordModel {
  std::unordered_map<std::string, std::int32_t> vocabulary;  ///< as written
  std::unique_ptr<WordEncoder> encoder;
  /// The encoder takes words of a ByteLevel pre_tokenizer as bytes; else in the byte alphabet.
  bool takes_bytes = false;
};

/// @param symbols bytes if the pre_tokenizer is byte-level
/// @param where names the field in messages. @throws DataError (malformed) or ConfigError (not a
/// model that Tessera reads).
WordModel read_word_model(ConfigTree const& model, Symbols symbols, std::string const& where);

}  // namespace tessera::data::detail
