#pragma once
/// UTF-8 validation, repair and code points, by Unicode 15.0 section 3.9 (table 3-7): no
/// surrogates, no overlong forms, nothing above U+10FFFF.

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

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
