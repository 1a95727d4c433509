#pragma once
/// Words of a command line as text for a POSIX shell.

#include <string>
#include <vector>

namespace tessera::cli {

/// The word as the shell reads it back: in single quotes if it is empty or contains characters that
/// the shell interprets.
std::string shell_quoted(std::string const& word);
/// The quoted words, separated by spaces.
std::string shell_line(std::vector<std::string> const& words);

}  // namespace tessera::cli
