#include "tessera/core/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/words.hpp"

namespace tessera {

std::string with_commas(std::int64_t value) {
  std::string digits = std::to_string(value);
  std::ptrdiff_t const first = value < 0 ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string printable(std::string text) {
  constexpr std::size_t max_bytes = std::size_t{16} << 10;
  if (text.size() > max_bytes)
    text = fmt::format("{} ... ({} bytes)", text.substr(0, max_bytes), text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto const c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F) text[i] = '?';
    // U+0080 to U+009F: control characters for some terminals
    if (c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
        static_cast<unsigned char>(text[i + 1]) < 0xA0)
      text[i] = text[i + 1] = '?';
  }
  return text;
}

std::string plural(std::int64_t count, std::string const& noun) {
  return count == 1 ? noun : noun + "s";
}

std::string counted(std::int64_t count, std::string const& noun) {
  return with_commas(count) + " " + plural(count, noun);
}

std::vector<std::string> split(std::string const& text, char separator) {
  std::vector<std::string> out{""};
  for (char const c : text)
    if (c == separator)
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-infinity" : "infinity";
  return fmt::format("{:g}", value);
}

std::string fixed_text(double value, int decimals) {
  if (!std::isfinite(value)) return number_text(value);
  return std::abs(value) < 1e6 ? fmt::format("{:.{}f}", value, decimals)
                               : fmt::format("{:.3e}", value);
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string join(std::vector<std::string> const& words, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i)
    out.append(i > 0 ? separator : "").append(words[i]);
  return out;
}

std::string human_bytes(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  char const* const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  while (value >= 1024.0 && unit < 5) value /= 1024.0, ++unit;
  return fmt::format("{:.1f} {}", value, names[unit]);
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  auto const s = static_cast<std::int64_t>(std::llround(seconds));
  if (s >= 86400) return fmt::format("{}d {:02}h", s / 86400, s % 86400 / 3600);
  if (s >= 3600) return fmt::format("{}h {:02}m", s / 3600, s % 3600 / 60);
  if (s >= 60) return fmt::format("{}m {:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

std::string deadline_text(std::chrono::milliseconds deadline) {
  if (deadline < std::chrono::seconds(1)) return fmt::format("{} ms", deadline.count());
  return fmt::format("{:.6g} s", std::chrono::duration<double>(deadline).count());
}

std::int64_t parse_size(std::string const& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr Unit units[] = {{"", 1},         {"B", 1},           {"KB", 1e3},
                                   {"MB", 1e6},     {"GB", 1e9},        {"TB", 1e12},
                                   {"KIB", 1024.0}, {"MIB", 1048576.0}, {"GIB", 1073741824.0}};
  double number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size()
                                                                 : unit.find_first_not_of(' '));
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (auto const& known : units)
    if (error == std::errc{} && unit == known.name && number * known.bytes >= 1 &&
        number * known.bytes < 9e18)
      return static_cast<std::int64_t>(number * known.bytes);
  throw UsageError(
      concat("'", text, "' is not a size; write 5GB, 500MB, 2GiB or a number of bytes"));
}

namespace {

unsigned byte_at(std::string_view s, std::size_t i) { return static_cast<unsigned char>(s[i]); }

struct Sequence {
  /// Bytes of the well-formed character, or of the maximal ill-formed sequence (at least 1)
  std::size_t bytes;
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
