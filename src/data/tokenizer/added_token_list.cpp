#include "tokenizer/added_token_list.hpp"

#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::data::detail {

AddedToken read_added_token(ConfigTree const& tree, AddedToken token) {
  token.content = tree.at("content").as_string();
  token.special = tree.get_bool("special", token.special);
  token.single_word = tree.get_bool("single_word", false);
  token.lstrip = tree.get_bool("lstrip", false);
  token.rstrip = tree.get_bool("rstrip", false);
  token.normalized = tree.get_bool("normalized", !token.special);
  return token;
}

AddedToken read_special_token(ConfigTree const& value) {
  AddedToken token;
  token.special = true;
  token.normalized = false;
  if (value.is_object()) return read_added_token(value, token);
  token.content = value.as_string();
  return token;
}

AddedTokenList::AddedTokenList(std::unordered_map<std::string, std::int32_t> const& vocabulary)
    : vocabulary_(vocabulary) {
  for (auto const& [token, id] : vocabulary) reserve(id);
}

void AddedTokenList::add(AddedToken token, std::string const& where) {
  TESSERA_VALIDATE(!token.content.empty(), DataError, where, " is an empty token");
  if (find(token.content) >= 0) return;
  auto const known = vocabulary_.find(token.content);
  if (token.id < 0)
    token.id =
        known != vocabulary_.end() ? known->second : static_cast<std::int32_t>(taken_.size());
  TESSERA_VALIDATE(known == vocabulary_.end() || known->second == token.id, DataError, where, ": '",
                   token.content, "' has the id ", token.id, " here and ", known->second,
                   " in the vocabulary");
  TESSERA_VALIDATE(reserve(token.id) || known != vocabulary_.end(), DataError, where, ": '",
                   token.content, "' has the id ", token.id, ", which belongs to another token");
  ids_.emplace(token.content, token.id);
  tokens_.push_back(std::move(token));
}

std::int32_t AddedTokenList::find(std::string const& content) const {
  auto const found = ids_.find(content);
  return found == ids_.end() ? -1 : found->second;
}

/// Marks an id as used; false if it was already.
bool AddedTokenList::reserve(std::int32_t id) {
  if (static_cast<std::size_t>(id) >= taken_.size())
    taken_.resize(static_cast<std::size_t>(id) + 1);
  bool const is_new = !taken_[static_cast<std::size_t>(id)];
  taken_[static_cast<std::size_t>(id)] = true;
  return is_new;
}

}  // namespace tessera::data::detail
