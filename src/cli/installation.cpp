#include "installation.hpp"

#include <fstream>
#include <iterator>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/utf8.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;

fs::path sibling_program(std::string const& name) {
  fs::path const file = fs::read_symlink("/proc/self/exe").parent_path() / name;
  TESSERA_VALIDATE(fs::exists(file), IoError, file.string(),
                   " is missing; the installation is incomplete, install Tessera again");
  return file;
}

fs::path shipped_file(fs::path const& relative) {
  return shipped_file(relative, fs::read_symlink("/proc/self/exe"));
}

fs::path shipped_file(fs::path const& relative, fs::path const& program) {
  // the installed layout of this build, and that of every build folder
  for (char const* data : {TESSERA_DATA_FROM_PROGRAMS, "../share/tessera"}) {
    fs::path const file = (program.parent_path() / data / relative).lexically_normal();
    if (fs::exists(file)) return file;
  }
  return {};
}

std::string read_text(fs::path const& file) {
  std::ifstream in(file, std::ios::binary);
  TESSERA_VALIDATE(in && !fs::is_directory(file), IoError, path_error("cannot read", file, errno));
  std::string text(std::istreambuf_iterator<char>(in), {});
  require_narrow(text, file.string());
  return text;
}

}  // namespace tessera::cli
