#include "tokenizer/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tokenizer/normalizer.hpp"

namespace tessera::data::detail {
namespace {

/// The character that ends at `end`, which is not 0.
std::string_view character_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
  return text.substr(begin, end - begin);
}

std::string_view character_after(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  next_code_point(text, end);
  return text.substr(begin, end - begin);
}

bool is_space(std::string_view character) {
  std::size_t at = 0;
  return is_white_space(next_code_point(character, at));
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), word_(concat("[", word_members, "]"), "single_word") {
  for (std::size_t i = 0; i < tokens_.size(); ++i) insert(static_cast<int>(i));
}

void AddedTokenMatcher::insert(int token) {
  std::string const& content = tokens_[static_cast<std::size_t>(token)].content;
  first_[static_cast<unsigned char>(content[0])] = true;
  std::size_t node = 0;
  for (char const c : content) {
    auto const byte = static_cast<unsigned char>(c);
    auto const found =
        std::ranges::find(trie_[node].next, byte, &std::pair<unsigned char, int>::first);
    if (found != trie_[node].next.end()) {
      node = static_cast<std::size_t>(found->second);
    } else {
      trie_[node].next.emplace_back(byte, static_cast<int>(trie_.size()));
      node = trie_.size();
      trie_.emplace_back();
    }
  }
  trie_[node].token = token;
}

int AddedTokenMatcher::longest_at(std::string_view text, std::size_t at) const {
  int best = -1;
  for (std::size_t node = 0; at < text.size(); ++at) {
    auto const& next = trie_[node].next;
    auto const found = std::ranges::find(next, static_cast<unsigned char>(text[at]),
                                         &std::pair<unsigned char, int>::first);
    if (found == next.end()) break;
    node = static_cast<std::size_t>(found->second);
    if (trie_[node].token >= 0) best = trie_[node].token;
  }
  return best;
}

bool AddedTokenMatcher::inside_word(std::string_view text, std::size_t begin,
                                    std::size_t end) const {
  Regex::Match match;
  return (begin > 0 && word_.search(character_before(text, begin), 0, match)) ||
         (end < text.size() && word_.search(character_after(text, end), 0, match));
}

void AddedTokenMatcher::split(std::string_view text, std::vector<Piece>& out) const {
  std::size_t done = 0;  // end of the last piece
  for (std::size_t at = 0; at < text.size();) {
    int const found = first_[static_cast<unsigned char>(text[at])] ? longest_at(text, at) : -1;
    if (found < 0) {
      ++at;
      continue;
    }
    AddedToken const& token = tokens_[static_cast<std::size_t>(found)];
    std::size_t begin = at, end = at + token.content.size();
    at = end;
    if (token.single_word && inside_word(text, begin, end)) continue;
    if (token.lstrip)
      while (begin > done && is_space(character_before(text, begin)))
        begin -= character_before(text, begin).size();
    if (token.rstrip)
      while (end < text.size() && is_space(character_after(text, end)))
        end += character_after(text, end).size();
    if (done < begin) out.push_back({text.substr(done, begin - done), -1});
    out.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({text.substr(done), -1});
}

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
