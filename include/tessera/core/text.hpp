#pragma once
/// Numbers as people read them, for logs and tables.

#include <cstdint>
#include <string>

namespace tessera {

/// 1234567 -> "1,234,567"
std::string with_commas(std::int64_t value);
/// For a terminal: control characters (but line ends and tabs), which a hostile file may put into a
/// name, become '?'; cut at 16 KiB.
std::string printable(std::string text);
/// "rank" or "ranks"
std::string plural(std::int64_t count, std::string const& noun);
/// 1536 -> "1.5 KiB"
std::string human_bytes(std::int64_t bytes);
/// "1d 03h", "1h 02m", "3m 20s", "12s"; "?" when not finite
std::string human_duration(double seconds);

}  // namespace tessera
