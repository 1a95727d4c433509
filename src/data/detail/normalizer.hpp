#pragma once
/// The normalizer of tokenizer.json: changes of the text before it is split into words.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "detail/regex.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::data::detail {

/// Steps NFC, NFD, NFKC, NFKD (Unicode Annex 15), Prepend, Replace and Strip, alone or in a
/// Sequence, in their order. An empty Sequence changes nothing.
class Normalizer {
 public:
  Normalizer() = default;
  /// @param tree null or the member `normalizer`
  /// @param where names the field in messages. @throws DataError (malformed) or ConfigError (not
  /// supported).
  Normalizer(ConfigTree const& tree, std::string const& where);

  bool empty() const { return steps_.empty(); }
  /// Of well-formed UTF-8. Not thread-safe: patterns share their match buffers.
  std::string apply(std::string_view text) const;

 private:
  enum class Kind { nfc, nfd, nfkc, nfkd, prepend, replace, strip };
  struct Step {
    Kind kind;
    std::optional<Regex> pattern;    ///< replace
    std::string text;                ///< prepend and replace: what is inserted
    bool left = true, right = true;  ///< strip
  };
  void append(ConfigTree const& tree, std::string const& where, int depth);
  static std::string apply(Step const& step, std::string text);

  std::vector<Step> steps_;
};

}  // namespace tessera::data::detail
