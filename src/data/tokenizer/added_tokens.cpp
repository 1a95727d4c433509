#include "tokenizer/added_tokens.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tokenizer/text_cleaning.hpp"

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

}  // namespace tessera::data::detail
