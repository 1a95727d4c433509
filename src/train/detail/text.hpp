#pragma once
/// Numbers as people read them.

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace tessera::train::detail {

inline std::string with_commas(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

inline std::string plural(std::int64_t count, char const* noun) { return count == 1 ? noun : std::string(noun) + "s"; }

inline std::string human_bytes(std::size_t bytes) {
  double value = static_cast<double>(bytes);
  char const* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t u = 0;
  while (value >= 1024.0 && u < 4) value /= 1024.0, ++u;
  return fmt::format(u == 0 ? "{:.0f} {}" : "{:.1f} {}", value, units[u]);
}

}  // namespace tessera::train::detail
