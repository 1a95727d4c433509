#pragma once
/// Files that live as long as a test.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace tessera {

class ScratchFiles {
 public:
  ScratchFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-test-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("cannot make a directory " + name);
    directory_ = name;
  }
  /// The directory of this name, for tests whose ranks share it.
  explicit ScratchFiles(std::string const& name)
      : directory_(std::filesystem::temp_directory_path() / ("tessera-test-" + name)) {
    std::filesystem::create_directories(directory_);
  }
  ~ScratchFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  ScratchFiles(ScratchFiles const&) = delete;
  ScratchFiles& operator=(ScratchFiles const&) = delete;

  std::filesystem::path const& directory() const { return directory_; }
  std::filesystem::path const& path() const { return directory_; }
  std::filesystem::path operator/(std::string const& name) const { return directory_ / name; }
  /// Writes (or replaces) a file and returns its path.
  std::string write(std::string const& name, std::string const& text) const {
    auto const file = directory_ / name;
    std::ofstream(file) << text;
    return file.string();
  }

 private:
  std::filesystem::path directory_;
};

}  // namespace tessera
