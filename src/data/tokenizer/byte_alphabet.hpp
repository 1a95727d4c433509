#pragma once
/// The byte alphabet of ByteLevel tokenizers (GPT-2, openai/gpt-2 encoder.py): each byte is written
/// as one printable character. ! to ~, U+00A1 to U+00AC and U+00AE to U+00FF are written as
/// themselves; the k-th remaining byte is U+0100 + k.

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/core/text.hpp"

namespace tessera::data::detail {

constexpr bool is_own_character(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/// byte -> code point
constexpr std::array<char32_t, 256> byte_characters = [] {
  std::array<char32_t, 256> table{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) table[byte] = is_own_character(byte) ? byte : next++;
  return table;
}();

/// code point -> byte, or -1
constexpr std::array<int, 0x144> character_bytes = [] {
  std::array<int, 0x144> table{};
  for (int& byte : table) byte = -1;
  for (unsigned byte = 0; byte < 256; ++byte) table[byte_characters[byte]] = static_cast<int>(byte);
  return table;
}();

/// The token of one byte.
inline std::string byte_token(unsigned byte) {
  std::string out;
  append_code_point(byte_characters[byte], out);
  return out;
}

/// The bytes of a token; nullopt if it has a character outside the alphabet.
inline std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    char32_t const code = next_code_point(token, at);
    if (code >= character_bytes.size() || character_bytes[code] < 0) return std::nullopt;
    out.push_back(static_cast<char>(character_bytes[code]));
  }
  return out;
}

/// The token of one byte where symbols are characters and characters without a token fall back to
/// bytes (SentencePiece): <0x00> to <0xFF>.
inline std::string fallback_token(unsigned byte) {
  constexpr char digits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4 & 15], digits[byte & 15], '>'};
}

}  // namespace tessera::data::detail
