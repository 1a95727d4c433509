#pragma once
/// The members decoder and post_processor of tokenizer.json: text from tokens that are characters,
/// and the special tokens around a text.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::data::detail {

/// Steps Replace, ByteFallback, Fuse, Strip, Metaspace and WordPiece, by themselves or in a
/// Sequence. Without a step the tokens are joined with spaces, as Hugging Face's tokenizers do.
class TokenDecoder {
 public:
  TokenDecoder() = default;
  /// @param tree null or the member `decoder`
  /// @param where names the field in messages. @throws DataError (malformed) or ConfigError (not
  /// supported).
  TokenDecoder(ConfigTree const& tree, std::string const& where);

  std::string decode(std::vector<std::string> tokens) const;

 private:
  enum class Kind { replace, byte_fallback, fuse, strip, metaspace, word_piece };
  struct Step {
    Kind kind;
    std::string from = {}, to = {};    ///< replace; the character of strip and metaspace; prefix
    std::int64_t start = 0, stop = 0;  ///< strip: at most this many characters at each end
    bool drops_first = false;          ///< metaspace: spaces of the first token are left out
    bool cleans_up = false;            ///< word_piece: no spaces before punctuation
  };
  void append(ConfigTree const& tree, std::string const& where);
  static void apply(Step const& step, std::vector<std::string>& tokens);

  std::vector<Step> steps_;
};

/// The post_processor of tokenizer.json: the special tokens around a text.
struct TemplateIds {
  std::vector<std::int32_t> prefix, suffix;
  /// The offsets of tokens leave out spaces, but for the first of a text.
  bool trims_offsets = false, keeps_first_space = false;
};

/// @param where names the field in messages. @throws DataError (malformed) or ConfigError (not
/// supported).
TemplateIds read_post_processor(ConfigTree const& tree, std::string const& where);

}  // namespace tessera::data::detail
