#include "tokenizer/charsmap.hpp"

#include <utf8proc.h>

#include <cstring>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data::detail {
namespace {

constexpr std::size_t longest_cluster = 5;  // bytes that are looked up in one piece

// A unit of the trie (Darts-clone, https://github.com/s-yata/darts-clone).
bool has_leaf(std::uint32_t unit) { return unit >> 8 & 1; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFu; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FFu; }
std::uint32_t offset_of(std::uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

std::uint32_t read_word(char const* bytes) {  // little-endian
  std::uint32_t out = 0;
  for (int i = 3; i >= 0; --i) out = out << 8 | static_cast<unsigned char>(bytes[i]);
  return out;
}

/// The end of the grapheme cluster that begins at `at`.
std::size_t cluster_end(std::string_view text, std::size_t at) {
  utf8proc_int32_t state = 0;
  auto code = static_cast<utf8proc_int32_t>(next_code_point(text, at));
  while (at < text.size()) {
    std::size_t next = at;
    auto const following = static_cast<utf8proc_int32_t>(next_code_point(text, next));
    if (utf8proc_grapheme_break_stateful(code, following, &state)) break;
    code = following;
    at = next;
  }
  return at;
}

}  // namespace

std::string decode_base64(std::string_view text, std::string const& where) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  std::uint32_t bits = 0;
  int count = 0;
  for (char const c : text) {
    int const digit = digit_of(c);
    TESSERA_VALIDATE(digit >= 0, DataError, where, " is not base64: it has the character '", c,
                     "'");
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return out;
}

Charsmap::Charsmap(std::string_view base64, std::string const& where) {
  std::string const bytes = decode_base64(base64, where);
  std::size_t const trie_bytes = bytes.size() >= 4 ? read_word(bytes.data()) : 0;
  TESSERA_VALIDATE(trie_bytes >= 4 && trie_bytes % 4 == 0 && trie_bytes <= bytes.size() - 4,
                   DataError, where, " has ", bytes.size(), " bytes and a trie of ", trie_bytes,
                   "; it is cut off or damaged");
  for (std::size_t at = 4; at < 4 + trie_bytes; at += 4)
    trie_.push_back(read_word(bytes.data() + at));
  replacements_ = bytes.substr(4 + trie_bytes);
  TESSERA_VALIDATE(is_utf8(replacements_), DataError, where,
                   " has replacements that are not UTF-8");
}

/// The replacement for the shortest entry that begins @p part.
std::optional<std::string_view> Charsmap::find(std::string_view part) const {
  std::size_t node = offset_of(trie_[0]);
  for (char const c : part) {
    auto const label = static_cast<unsigned char>(c);
    node ^= label;
    if (label == 0 || node >= trie_.size() || label_of(trie_[node]) != label) return {};
    std::uint32_t const unit = trie_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    std::size_t const at = node < trie_.size() ? value_of(trie_[node]) : replacements_.size();
    if (at >= replacements_.size()) return {};
    return std::string_view(replacements_)
        .substr(at, std::strlen(replacements_.c_str() + at));  // ends with a zero byte
  }
  return {};
}

bool Charsmap::append(std::string_view part, std::string& out) const {
  auto const found = find(part);
  if (found) out += *found;
  return found.has_value();
}

std::string Charsmap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const end = cluster_end(text, at);
    if (end - at > longest_cluster || !append(text.substr(at, end - at), out))
      while (at < end) {
        std::size_t const begin = at;
        next_code_point(text, at);
        std::string_view const character = text.substr(begin, at - begin);
        if (!append(character, out)) out += character;
      }
    at = end;
  }
  return out;
}

}  // namespace tessera::data::detail
