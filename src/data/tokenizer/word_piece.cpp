#include "tokenizer/word_piece.hpp"

#include <algorithm>

namespace tessera::data::detail {
namespace {

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

}  // namespace

WordPiece::WordPiece(WordPieceTables const& tables)
    : max_characters_(tables.max_characters), unknown_id_(tables.unknown_id) {
  for (auto const& [token, id] : tables.vocabulary) {
    first_.emplace(token, id);
    if (token.starts_with(tables.continuing_prefix))
      inner_.emplace(token.substr(tables.continuing_prefix.size()), id);
    longest_ = std::max(longest_, token.size());
  }
}

void WordPiece::encode_new(std::string_view word, std::vector<std::int32_t>& out) {
  std::size_t const before = out.size();
  auto const characters = static_cast<std::size_t>(std::ranges::count_if(word, begins_character));
  std::size_t begin = characters > max_characters_ ? word.size() + 1 : 0;
  while (begin < word.size()) {
    Ids const& ids = begin == 0 ? first_ : inner_;
    auto found = ids.end();
    std::size_t end = std::min(word.size(), begin + longest_);
    for (; end > begin; --end) {
      if (end < word.size() && !begins_character(word[end])) continue;
      found = ids.find(word.substr(begin, end - begin));
      if (found != ids.end()) break;
    }
    if (found == ids.end()) break;
    out.push_back(found->second);
    begin = end;
  }
  if (begin == word.size()) return;
  out.resize(before);
  out.push_back(unknown_id_);
}

}  // namespace tessera::data::detail
