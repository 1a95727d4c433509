#include "tessera/core/text.hpp"

#include <fmt/format.h>

#include <cmath>

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

}  // namespace tessera
