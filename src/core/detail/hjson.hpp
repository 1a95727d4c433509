#pragma once
/// Hjson, the relaxed JSON in which DeepSpeed reads its configuration: https://hjson.github.io.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera::detail {

/// Reads @p text as Python's hjson does: comments (#, //, /* */), keys without quotes, strings in
/// single, double or triple quotes, text without quotes up to the end of its line, commas that may
/// be missing or trail, and a root object without braces.
/// @param source  names the text in messages
/// @throws DataError with line and column; whatever @p events throws
void parse_hjson(std::string_view text, std::string const& source,
                 nlohmann::json_sax<nlohmann::json>& events);

}  // namespace tessera::detail
