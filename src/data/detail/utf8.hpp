#pragma once
/// UTF-8 as Unicode 15.0 section 3.9 defines it (table 3-7): no surrogates, no overlong forms,
/// nothing above U+10FFFF.

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::data::detail {

/// Length of the longest well-formed prefix, in bytes.
std::size_t valid_utf8_prefix(std::string_view bytes);

/// Appends `bytes` to `out`; each maximal ill-formed part becomes one U+FFFD, as
/// bytes.decode("utf-8", errors="replace") does in Python. @returns the number of replacements.
std::size_t append_valid_utf8(std::string_view bytes, std::string& out);

/// Appends one code point.
void append_code_point(char32_t code, std::string& out);

/// The code point at `at` of well-formed text; moves `at` past it.
char32_t next_code_point(std::string_view text, std::size_t& at);

}  // namespace tessera::data::detail
