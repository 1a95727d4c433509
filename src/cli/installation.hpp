#pragma once
/// Where this installation's other files are, found from the running program: the tree may have
/// been moved.

#include <filesystem>
#include <string>

namespace tessera::cli {

/// bin/NAME beside the running program. @throws IoError when it is not there
std::filesystem::path sibling_program(std::string const& name);

/// A shipped file: <prefix>/share/tessera/<relative>, or <source>/<relative> for programs in a
/// build tree. Empty when absent.
std::filesystem::path shipped_file(std::filesystem::path const& relative);

/// The whole text of a file. @throws IoError
std::string read_text(std::filesystem::path const& file);

}  // namespace tessera::cli
