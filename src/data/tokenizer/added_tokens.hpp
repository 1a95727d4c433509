#pragma once
/// Added tokens: special tokens and those that a user has added, matched in the text before it is
/// split into words.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/regex.hpp"

namespace tessera::data::detail {

/// Field names and meaning as in tokenizer.json.
struct AddedToken {
  std::string content;
  std::int32_t id = -1;
  bool special = false;
  bool single_word = false;  ///< not inside a longer word
  bool lstrip = false;       ///< includes the white space before it
  bool rstrip = false;       ///< includes the white space after it
  bool normalized = true;    ///< matched after the tokens that are not
};

/// Finds added tokens in a text: the leftmost first; of several that begin there, the longest.
class AddedTokenMatcher {
 public:
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  /// A part of the text; id < 0 where it is not an added token.
  struct Piece {
    std::string_view text;
    std::int32_t id;
  };
  /// Appends the pieces of well-formed `text` in order.
  void split(std::string_view text, std::vector<Piece>& out) const;
  bool empty() const { return tokens_.empty(); }

 private:
  struct Node {
    std::vector<std::pair<unsigned char, int>> next;
    int token = -1;
  };
  void insert(int token);
  int longest_at(std::string_view text, std::size_t at) const;
  bool inside_word(std::string_view text, std::size_t begin, std::size_t end) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> trie_{1};
  std::array<bool, 256> first_{};
  Regex word_;
};

}  // namespace tessera::data::detail
