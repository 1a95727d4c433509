#include "installation.hpp"

#include <gtest/gtest.h>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

TEST(Installation, ProgramsAreNextToTheRunningOne) {
  EXPECT_TRUE(std::filesystem::exists(sibling_program("test.cli.installation")));
  EXPECT_THROW(sibling_program("no-such-program"), IoError);
  EXPECT_TRUE(shipped_file("no/such/file").empty());
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
