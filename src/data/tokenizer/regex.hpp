#pragma once
/// The regular expressions of pre-tokenizers, over well-formed UTF-8, matched by PCRE2 with Unicode
/// properties.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tessera::data::detail {

/// Members of a class: the characters of words (Unicode Annex 18, \w), as Rust has them.
inline constexpr std::string_view word_members =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";

/// \p{...}, \s, \d and \w are made independent of PCRE2's own tables (10.42 knows Unicode 14, and
/// its \s takes U+180E): they mean Unicode 16's categories, White_Space and what Oniguruma takes
/// for words, as in the libraries that Hugging Face's tokenizers uses.
class Regex {
 public:
  struct Match {
    std::size_t begin, end;
  };

  /// @param where names the field the pattern comes from. @throws ConfigError for a pattern that
  /// cannot be compiled.
  Regex(std::string_view pattern, std::string const& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// The first non-empty match that begins at or after `from`. Not thread-safe: the match buffer is
  /// shared.
  bool search(std::string_view text, std::size_t from, Match& match) const;

  /// A pattern that matches `literal` itself.
  static std::string quote(std::string_view literal);

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace tessera::data::detail
