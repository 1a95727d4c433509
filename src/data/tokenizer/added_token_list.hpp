#pragma once
/// The list of added tokens while a tokenizer's files are read.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tokenizer/added_tokens.hpp"

namespace tessera::data::detail {

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
  std::unordered_map<std::string, std::int32_t> ids_;  ///< of tokens_
  std::vector<bool> taken_;                            ///< by id; its size is the next free id
};

}  // namespace tessera::data::detail
