#pragma once
/// Reads the files of a tokenizer into ids, bytes, patterns and word models, and validates them.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/token_decoder.hpp"

namespace tessera::data::detail {

/// The member `model` of tokenizer.json, of every type.
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

struct TokenizerFile {
  Normalizer normalizer;
  WordModel model;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;  ///< only for tokens of characters
  std::vector<AddedToken> added;
  std::vector<std::int32_t> prefix_ids, suffix_ids;  ///< added before and after every text
  /// How the post_processor trims offsets: see TemplateIds.
  bool trims_offsets = false, keeps_first_space = false;
  /// SentencePiece's character for spaces is put before every text, and written as a space in it.
  bool prefixes_input = false;
  /// SentencePiece's space is dropped where it begins the ids and one of these follows.
  std::vector<std::int32_t> no_space_before;
  std::int64_t model_max_length = std::numeric_limits<std::int64_t>::max();
  std::int32_t bos_id = -1, eos_id = -1;
  std::uint64_t fingerprint = 0;
  std::vector<std::filesystem::path> files;
};

/// @throws IoError, DataError (malformed) or ConfigError (well-formed, but not a
/// tokenizer that Tessera reads).
TokenizerFile read_tokenizer_file(std::filesystem::path const& path);

}  // namespace tessera::data::detail
