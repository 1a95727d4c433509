#pragma once
/// Text for messages and JSON.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {

using tessera::printable;
/// The text as a JSON string with its quotes.
std::string json_quote(std::string_view text);
/// "[2, 3]" and "[\"a\", \"b\"]": JSON, and what messages say.
std::string list_text(std::vector<std::int64_t> const& numbers);
std::string list_text(std::vector<std::string> const& strings);

}  // namespace tessera::checkpoint::detail
