#pragma once
/// SentencePiece's precompiled_charsmap: replacements of characters, found by a double-array trie.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data::detail {

/// The normalizer Precompiled of tokenizer.json. Like Hugging Face's, it looks up each grapheme
/// cluster of fewer than 6 bytes, else its characters, and takes the shortest entry that begins
/// there for all of it.
class Charsmap {
 public:
  /// @param base64 the member precompiled_charsmap. @throws DataError for malformed data.
  Charsmap(std::string_view base64, std::string const& where);

  std::string apply(std::string_view text) const;

 private:
  std::optional<std::string_view> find(std::string_view part) const;
  bool append(std::string_view part, std::string& out) const;

  std::vector<std::uint32_t> trie_;
  std::string replacements_;  ///< each ends with a zero byte
};

/// @throws DataError naming @p where.
std::string decode_base64(std::string_view text, std::string const& where);

}  // namespace tessera::data::detail
