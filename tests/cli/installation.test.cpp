#include "installation.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

TEST(Installation, ProgramsAreNextToTheRunningOne) {
  EXPECT_TRUE(std::filesystem::exists(sibling_program("test.cli.installation")));
  EXPECT_THROW(sibling_program("no-such-program"), IoError);
  EXPECT_TRUE(shipped_file("no/such/file").empty());
}

/// Only the program's own prefix counts: a folder with the right name further up does not.
TEST(Installation, FilesAreFoundFromTheProgram) {
  ScratchFiles const files;
  auto const prefix = files.directory() / "apps/tessera";
  std::filesystem::create_directories(prefix / "bin");
  std::filesystem::create_directories(prefix / "share/tessera/slurm");
  std::filesystem::create_directories(files.directory() / "apps/configs");
  std::ofstream(prefix / "share/tessera/slurm/array.sh") << "template";
  EXPECT_EQ(shipped_file("slurm/array.sh", prefix / "bin/tessera"),
            prefix / "share/tessera/slurm/array.sh");
  EXPECT_TRUE(shipped_file("configs", prefix / "bin/tessera").empty());
  std::filesystem::rename(prefix, files.directory() / "moved");
  EXPECT_TRUE(shipped_file("slurm/array.sh", prefix / "bin/tessera").empty());
  EXPECT_EQ(shipped_file("slurm/array.sh", files.directory() / "moved/bin/tessera"),
            files.directory() / "moved/share/tessera/slurm/array.sh");
}

TEST(Installation, FilesAreReadCompletely) {
  ScratchFiles const files;
  std::string const text("a\r\n\0b", 5);
  EXPECT_EQ(read_text(files.write("file", text)), text);
  EXPECT_THROW(read_text(files.directory()), IoError);
  EXPECT_THROW(read_text(files.directory() / "none"), IoError);
}

}  // namespace
}  // namespace tessera::cli
