#pragma once
/// Text: numbers, sizes in bytes as users write them, and UTF-8 (validation, repair, code points)
/// by Unicode 15.0 section 3.9 (table 3-7): no surrogates, no overlong forms, nothing above
/// U+10FFFF.

#include <chrono>
#include <cstddef>
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
/// Writes a number with @p decimals digits after the point; from a million on "1.235e+09"; "NaN",
/// "infinity"
std::string fixed_text(double value, int decimals);
/// 1536 -> "1.5 KiB"
std::string human_bytes(std::int64_t bytes);
/// ASCII letters in lower case.
std::string lower_case(std::string text);
/// {"a", "b"}, ", " -> "a, b"
std::string join(std::vector<std::string> const& words, std::string_view separator = ", ");
/// "1d 03h", "1h 02m", "3m 20s", "12s"; "?" when not finite
std::string human_duration(double seconds);
/// A deadline in messages: "800 ms", "1.5 s", "600 s"
std::string deadline_text(std::chrono::milliseconds deadline);

/// "5GB", "500MB", "2GiB", "1048576" as bytes (GB = 1e9, as Hugging Face counts).
/// @throws UsageError for anything else, and for less than a byte
std::int64_t parse_size(std::string const& text);

/// Length of the longest well-formed prefix, in bytes.
std::size_t valid_utf8_prefix(std::string_view bytes);
inline bool is_utf8(std::string_view bytes) { return valid_utf8_prefix(bytes) == bytes.size(); }

/// Appends `bytes` to `out`; each maximal ill-formed sequence becomes one U+FFFD, as
/// bytes.decode("utf-8", errors="replace") does in Python. @returns the number of replacements.
std::size_t append_valid_utf8(std::string_view bytes, std::string& out);

/// Text without the byte order mark of UTF-8 at its begin.
std::string_view without_mark(std::string_view text);

/// The name that iconv has for the encoding of text that begins with a mark of UTF-16 or UTF-32, or
/// with ASCII characters in one of them; empty for anything else.
std::string_view wide_encoding(std::string_view text);

/// @throws DataError for text in UTF-16 or UTF-32, with the command that converts @p file
void require_narrow(std::string_view text, std::string const& file);

/// Appends the UTF-8 encoding of one code point.
void append_code_point(char32_t code, std::string& out);

/// The code point at `at` of well-formed text; moves `at` past it.
char32_t next_code_point(std::string_view text, std::size_t& at);

}  // namespace tessera
