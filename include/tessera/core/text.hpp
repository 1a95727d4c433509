#pragma once
/// Text for logs, tables and messages: readable numbers, lists, printable names.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// 1234567 -> "1,234,567"
std::string with_commas(std::int64_t value);
/// Makes text from a file safe for a terminal: control characters except newline and tab become
/// '?'; cut at 16 KiB.
std::string printable(std::string text);
/// "rank" or "ranks"
std::string plural(std::int64_t count, std::string const& noun);
/// 1, "step" -> "1 step"; 1200, "step" -> "1,200 steps"
std::string counted(std::int64_t count, std::string const& noun);
/// Six significant digits: "0.0001", "1e+30"; "NaN" and "infinity"
std::string number_text(double value);
/// With @p decimals digits after the point; from a million on "1.235e+09"; "NaN", "infinity"
std::string fixed_text(double value, int decimals);
/// 1536 -> "1.5 KiB"
std::string human_bytes(std::int64_t bytes);
/// {"a", "b"}, ", " -> "a, b"
std::string join(std::vector<std::string> const& words, std::string_view separator = ", ");
/// "1d 03h", "1h 02m", "3m 20s", "12s"; "?" when not finite
std::string human_duration(double seconds);
/// A deadline in messages: "800 ms", "1.5 s", "600 s"
std::string deadline_text(std::chrono::milliseconds deadline);

}  // namespace tessera
