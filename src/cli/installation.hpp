#pragma once
/// Paths of this installation, relative to the running program, so that the tree can be moved.

#include <filesystem>
#include <string>

namespace tessera::cli {

/// The program @p name in the directory of the running program. @throws IoError when it is missing
std::filesystem::path sibling_program(std::string const& name);

/// An installed file: <prefix>/share/tessera/<relative>. A build folder has the same layout, with
/// links to the source tree. Empty when it is missing.
std::filesystem::path shipped_file(std::filesystem::path const& relative);
/// The same for the program @p program.
std::filesystem::path shipped_file(std::filesystem::path const& relative,
                                   std::filesystem::path const& program);

/// The complete text of a file. @throws IoError, DataError for UTF-16 and UTF-32
std::string read_text(std::filesystem::path const& file);

}  // namespace tessera::cli
