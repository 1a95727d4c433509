#include "tessera/core/utf8.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#include "tessera/core/error.hpp"

namespace tessera {
namespace {

unsigned byte_at(std::string_view s, std::size_t i) { return static_cast<unsigned char>(s[i]); }

struct Sequence {
  std::size_t
      bytes;  ///< of the well-formed character, or of the maximal ill-formed sequence (at least 1)
  bool valid;
};

/// Reads the sequence that starts at `at`. The second byte has a narrower range after E0, ED, F0
/// and F4 (table 3-7).
Sequence read_sequence(std::string_view s, std::size_t at) {
  unsigned const lead = byte_at(s, at);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  std::size_t const length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t k = 1; k < length; ++k) {
    if (at + k >= s.size() || byte_at(s, at + k) < low || byte_at(s, at + k) > high)
      return {k, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

}  // namespace

std::string_view without_mark(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

std::string_view wide_encoding(std::string_view text) {
  using namespace std::string_view_literals;
  if (text.starts_with("\xFF\xFE\0\0"sv) || text.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (text.starts_with("\xFF\xFE"sv) || text.starts_with("\xFE\xFF"sv)) return "UTF-16";
  constexpr std::size_t looked_at = 8;
  if (text.size() < looked_at) return "";
  std::string zeros;  // the pattern of zero bytes between ASCII characters
  for (std::size_t i = 0; i < looked_at; ++i) {
    if (byte_at(text, i) >= 0x80) return "";
    zeros += text[i] == '\0' ? '0' : 'x';
  }
  for (auto const& [pattern, name] :
       {std::pair("x0x0x0x0"sv, "UTF-16LE"sv), std::pair("0x0x0x0x"sv, "UTF-16BE"sv),
        std::pair("x000x000"sv, "UTF-32LE"sv), std::pair("000x000x"sv, "UTF-32BE"sv)})
    if (zeros == pattern) return name;
  return "";
}

void require_narrow(std::string_view text, std::string const& file) {
  std::string_view const encoding = wide_encoding(text);
  std::string_view const open = file.ends_with(".gz")    ? "zcat "
                                : file.ends_with(".zst") ? "zstdcat "
                                                         : "cat ";
  TESSERA_VALIDATE(encoding.empty(), DataError, file, " is text in ", encoding,
                   ", and Tessera reads UTF-8; convert it: ", open, file, " | iconv -f ", encoding,
                   " -t UTF-8 > new-file");
}

std::size_t valid_utf8_prefix(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    std::uint64_t word;
    if (at + sizeof word <= bytes.size()) {
      std::memcpy(&word, bytes.data() + at, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof word;
        continue;
      }
    }
    Sequence const next = read_sequence(bytes, at);
    if (!next.valid) return at;
    at += next.bytes;
  }
  return at;
}

std::size_t append_valid_utf8(std::string_view bytes, std::string& out) {
  std::size_t replaced = 0;
  while (true) {
    std::size_t const good = valid_utf8_prefix(bytes);
    out.append(bytes.substr(0, good));
    if (good == bytes.size()) return replaced;
    out.append("\xEF\xBF\xBD");
    ++replaced;
    bytes.remove_prefix(good + read_sequence(bytes, good).bytes);
  }
}

void append_code_point(char32_t code, std::string& out) {
  auto const put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  unsigned const lead = byte_at(text, at);
  std::size_t const length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
  for (std::size_t k = 1; k < length; ++k) code = code << 6 | (byte_at(text, at + k) & 0x3F);
  at += length;
  return code;
}

}  // namespace tessera
