#pragma once
/// The normalizer of tokenizer.json: changes of the text before it is split into words.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::data::detail {

/// Steps NFC, NFD, NFKC, NFKD (Unicode Annex 15), Prepend, Replace, Strip, StripAccents, Lowercase,
/// Nmt, Precompiled and BertNormalizer, alone or in a Sequence, in their order. An empty Sequence
/// changes nothing.
class Normalizer {
 public:
  Normalizer() = default;
  /// @param tree null or the member `normalizer`
  /// @param where names the field in messages. @throws DataError (malformed) or ConfigError (not
  /// supported).
  Normalizer(ConfigTree const& tree, std::string const& where);

  bool empty() const { return steps_.empty(); }
  /// Of well-formed UTF-8. Not thread-safe: patterns share their match buffers.
  std::string apply(std::string_view text) const { return normalize(text).text; }

  struct Result {
    std::string text;
    bool keeps_start = true;  ///< the first character of the text has not been removed
  };
  Result normalize(std::string_view text) const;

 private:
  struct Step {
    std::function<std::string(std::string)> change;
    bool removes = false;  ///< characters, so that later ones may become the first
  };
  void append(ConfigTree const& tree, std::string const& where, int depth);

  std::vector<Step> steps_;
};

}  // namespace tessera::data::detail
