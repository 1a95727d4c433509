#pragma once
/// The regular expressions of pre-tokenizers, over well-formed UTF-8, matched by PCRE2 with Unicode
/// properties.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tessera::data::detail {

/// \p{...} and \s are made independent of PCRE2's own tables (10.42 knows Unicode 14, and its \s
/// takes U+180E): they mean Unicode 16's categories and White_Space, as in the libraries that
/// Hugging Face's tokenizers uses.
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
