#pragma once
/// The WordPiece model (Devlin et al., "BERT", 2018): a word is cut into the longest tokens from
/// the left; tokens inside a word carry a prefix.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/word_encoder.hpp"

namespace tessera::data::detail {

struct WordPieceTables {
  std::unordered_map<std::string, std::int32_t> vocabulary;
  std::string continuing_prefix = "##";
  std::int32_t unknown_id = 0;
  std::size_t max_characters = 100;  ///< longer words are unknown
};

/// A word that cannot be cut completely becomes the unknown token.
class WordPiece : public WordEncoder {
 public:
  explicit WordPiece(WordPieceTables const& tables);

 private:
  using Ids = std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>>;

  void encode_new(std::string_view word, std::vector<std::int32_t>& out) override;

  Ids first_, inner_;        ///< tokens that begin a word; those inside one, without the prefix
  std::size_t longest_ = 0;  ///< in bytes
  std::size_t max_characters_;
  std::int32_t unknown_id_;
};

}  // namespace tessera::data::detail
