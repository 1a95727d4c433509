#pragma once
/// The pre_tokenizer of tokenizer.json: the steps that split text into words.

#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::data::detail {

/// What becomes of the text that a pattern matches; the names are those of tokenizer.json.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Where a step inserts its prefix, unless the text begins with it.
enum class Prefix {
  never,
  first,   ///< before the text that begins the input
  always,  ///< before every text between added tokens
};

/// One step of splitting.
struct SplitRule {
  std::string pattern;  ///< regular expression of the matches; empty: does not split
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  ///< the text between the matches is what the behavior is about
  std::string space{};  ///< replaces each space first; empty: spaces stay
  Prefix prefix = Prefix::never;
  bool writes_alphabet = false;  ///< its words are written in the byte alphabet for later steps

  /// The prefix: a space, or what replaces it.
  std::string prefix_text() const { return space.empty() ? " " : space; }
};

struct PreTokenizer {
  std::vector<SplitRule> rules;
  bool byte_level = false;   ///< words are in the byte alphabet, so the model's symbols are bytes
  bool in_alphabet = false;  ///< words are written in it, because steps follow ByteLevel
};

/// @param tree null or the member `pre_tokenizer`
/// @param where names the field in messages. @throws DataError (malformed) or ConfigError (not
/// supported).
PreTokenizer read_pre_tokenizer(ConfigTree const& tree, std::string const& where);

/// A piece of text that a pattern split off, as offsets.
struct Span {
  std::size_t begin, end;
};

/// Joins or removes pieces as the behavior says. @p pieces alternate between matches and the text
/// between them in any order; is_match[i] belongs to pieces[i]. Empty pieces are not passed.
std::vector<Span> fold_pieces(std::vector<Span> const& pieces, std::vector<bool> const& is_match,
                              SplitBehavior behavior);

}  // namespace tessera::data::detail
