#pragma once
/// Lists that users write as one text.

#include <string>
#include <vector>

namespace tessera {

/// The parts between separators, empty ones too: "a@" has two, "" has one.
std::vector<std::string> split(std::string const& text, char separator);

}  // namespace tessera
