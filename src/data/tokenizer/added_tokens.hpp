#pragma once
/// Added tokens: special tokens and those that a user has added, matched in the text before it is
/// split into words.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/core/config_tree.hpp"
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

/// The fields of an added token in tokenizer.json; @p token has the defaults.
AddedToken read_added_token(ConfigTree const& tree, AddedToken token);
/// A special token is written as its text or as an object with the fields of AddedToken.
AddedToken read_special_token(ConfigTree const& value);

/// A token that is already in the list keeps its first description.
class AddedTokenList {
 public:
  /// @p vocabulary must outlive the list.
  explicit AddedTokenList(std::unordered_map<std::string, std::int32_t> const& vocabulary);

  /// With id < 0 the token gets its id in the vocabulary, or the next free one. @p where is for
  /// messages. @throws DataError for an id that contradicts another token.
  void add(AddedToken token, std::string const& where);
  /// The id of an added token, or -1.
  std::int32_t find(std::string const& content) const;
  std::vector<AddedToken> take() { return std::move(tokens_); }

 private:
  bool reserve(std::int32_t id);

  std::unordered_map<std::string, std::int32_t> const& vocabulary_;
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;  ///< ids of tokens_
  std::vector<bool> taken_;                            ///< by id; its size is the next free id
};

}  // namespace tessera::data::detail
