#pragma once
/// The normalizer of tokenizer.json: changes of the text before it is split into words, also those
/// of single characters.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::data::detail {

/// Steps NFC, NFD, NFKC, NFKD (Unicode Annex 15), Prepend, Replace, Strip, StripAccents, Lowercase,
/// Nmt, Precompiled and BertNormalizer, by themselves or in a Sequence, in their order. An empty
/// Sequence changes nothing.
class Normalizer {
 public:
  Normalizer() = default;
  /// @param tree null or the member `normalizer`
  /// @param where names the field in messages. @throws DataError (malformed) or ConfigError (not
  /// supported).
  Normalizer(ConfigTree const& tree, std::string const& where);

  bool empty() const { return steps_.empty(); }
  /// Normalizes well-formed UTF-8. It is not thread-safe: patterns share their match buffers.
  std::string apply(std::string_view text) const { return normalize(text).text; }

  struct Result {
    std::string text;
    /// Leading bytes that come from the first character of the input: both characters of U+00B4,
    /// which NFKC turns into a space and an accent, and the accent after Strip.
    std::size_t start = 0;
  };
  Result normalize(std::string_view text) const;

 private:
  struct Step {
    std::function<std::string(std::string)> change;
    /// How many characters of the result come from the first @p start bytes of @p text; not set: as
    /// many as change() makes of those.
    std::function<std::size_t(std::string const& text, std::size_t start)> left{};
  };
  static Step make_step(ConfigTree const& tree, std::string const& type, std::string const& where);
  static Step replace_step(ConfigTree const& tree, std::string const& where);
  static Step strip_step(ConfigTree const& tree);
  void append(ConfigTree const& tree, std::string const& where, int depth);

  std::vector<Step> steps_;
};

/// Changes of single characters, as normalizers of Hugging Face's tokenizers make them.
bool is_white_space(char32_t code);  ///< White_Space of Unicode

/// Normalizer Nmt: removes control characters, and writes several kinds of space as a space.
std::string nmt_cleaned(std::string_view text);
/// Lower case of each character by itself.
std::string lowercased(std::string_view text);
/// StripAccents: removes combining marks; does not decompose.
std::string without_combining_marks(std::string_view text);

/// The steps of BertNormalizer; strip_accents needs NFD before it.
std::string bert_cleaned(std::string_view text);
std::string with_spaced_ideographs(std::string_view text);
std::string without_nonspacing_marks(std::string_view text);

}  // namespace tessera::data::detail
