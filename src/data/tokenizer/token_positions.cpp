#include "tokenizer/token_positions.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

/// SentencePiece's character for spaces as a space.
std::string with_spaces(std::string_view text) {
  constexpr std::string_view mark = "\u2581";
  std::string out;
  while (!text.empty()) {
    bool const space = text.starts_with(mark);
    out += space ? ' ' : text[0];
    text.remove_prefix(space ? mark.size() : 1);
  }
  return out;
}

/// The byte of a token such as "<0xE2>".
std::optional<char> byte_of(std::string_view surface) {
  unsigned byte = 0;
  if (surface.size() != 6 || !surface.starts_with("<0x") || surface[5] != '>') return {};
  auto const read = std::from_chars(surface.data() + 3, surface.data() + 5, byte, 16);
  if (read.ptr != surface.data() + 5) return {};
  return static_cast<char>(byte);
}

/// The bytes at @p at that a token is, npos if it is another text (an unknown character).
std::size_t size_at(std::string_view text, std::size_t at, std::string_view surface) {
  if (!surface.empty() && text.substr(at).starts_with(surface)) return surface.size();
  auto const byte = byte_of(surface);
  return byte && at < text.size() && text[at] == *byte ? 1 : std::string_view::npos;
}

}  // namespace

TokenPositions::TokenPositions(std::string_view text, std::vector<std::string> const& surfaces) {
  std::string whole = with_spaces(text);
  std::vector<std::string> parts;
  for (auto const& surface : surfaces) parts.push_back(with_spaces(surface));
  if (!parts.empty() && parts[0].starts_with(' ') && !whole.starts_with(parts[0])) {
    whole.insert(0, 1, ' ');
    added_ = 1;
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::size_t size = size_at(whole, at, parts[i]);
    if (size == std::string::npos) {  // an unknown token ends where the next one begins
      std::size_t end = at + 1;
      while (end < whole.size() &&
             (i + 1 == parts.size() || size_at(whole, end, parts[i + 1]) == std::string::npos))
        ++end;
      size = end - at;
    }
    positions_.push_back({at, at + size});
    at += size;
  }
  size_ = whole.size();
  TESSERA_VALIDATE(at == size_, DataError,
                   "the tokens of a text do not make the text, so that those of an assistant "
                   "cannot be told apart; its normalizer or pre_tokenizer removes characters");
}

std::size_t TokenPositions::of_prefix(std::string_view prefix) const {
  return with_spaces(prefix).size() + added_;
}

TextSpan without_spaces(TextSpan token, std::string_view surface, bool first) {
  std::size_t leading = std::min(surface.find_first_not_of(' '), surface.size());
  std::size_t const trailing =
      surface.size() - std::min(surface.find_last_not_of(' ') + 1, surface.size());
  if (first && leading > 0) --leading;
  token.begin = std::min(token.begin + leading, token.end);
  token.end = std::max(token.end - std::min(trailing, token.end), token.begin);
  return token;
}

void SpanMarker::begin_piece(TextSpan piece, std::function<std::size_t(std::size_t)> const& moved) {
  while (first_ < spans_.size() && spans_[first_].end <= piece.begin) ++first_;
  current_.clear();
  for (std::size_t i = first_; i < spans_.size() && spans_[i].begin < piece.end; ++i)
    current_.push_back({moved(spans_[i].begin), moved(spans_[i].end)});
}

void SpanMarker::add(TextSpan token) {
  while (!current_.empty() && token.begin >= current_.front().end) current_.erase(current_.begin());
  inside_.push_back(!current_.empty() && token.end > current_.front().begin);
}

}  // namespace tessera::data::detail
