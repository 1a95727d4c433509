#include "tessera/core/files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  std::string read(fs::path const& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<fs::path> entries() {
    std::vector<fs::path> out;
    for (auto const& entry : fs::directory_iterator(folder_.directory()))
      out.push_back(entry.path());
    return out;
  }
  ScratchFiles folder_;
};

TEST_F(Files, WritesAndReplacesAndLeavesNoTemporaryFile) {
  fs::path const file = folder_.directory() / "status.json";
  write_file_atomically(file, "first, longer");
  write_file_atomically(file, "second");
  EXPECT_EQ(read(file), "second");
  EXPECT_EQ(entries().size(), 1u);
}

TEST_F(Files, ACopyHasThePermissionsOfANewFile) {
  fs::path const from = folder_.directory() / "read_only", to = folder_.directory() / "copy";
  write_file_atomically(from, "content");
  fs::permissions(from, fs::perms::owner_read | fs::perms::others_read);
  ::mode_t const mask = ::umask(027);
  copy_file_atomically(from, to);
  copy_file_atomically(from, to);
  ::umask(mask);
  EXPECT_EQ(read(to), "content");
  EXPECT_EQ(fs::status(to).permissions(),
            fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
  EXPECT_THROW(copy_file_atomically(folder_.directory() / "missing", to), IoError);
  EXPECT_EQ(read(to), "content");
}

TEST_F(Files, WritesIntoADeviceInsteadOfReplacingIt) {
  fs::path const full = folder_.directory() / "full", null = folder_.directory() / "null";
  fs::create_symlink("/dev/full", full);  // links: a defect would replace the link
  fs::create_symlink("/dev/null", null);
  write_file_atomically(null, "text");
  EXPECT_THROW(write_file_atomically(full, "text"), IoError);
  EXPECT_TRUE(fs::is_character_file(null) && fs::is_character_file(full));
  EXPECT_EQ(entries().size(), 2u);
}

TEST_F(Files, AReaderSeesOneOfTheVersionsOnly) {
  fs::path const file = folder_.directory() / "status.json";
  std::string const a(70'000, 'a'), b(50'000, 'b');
  write_file_atomically(file, a);
  std::jthread writer([&] {
    for (int i = 0; i < 20; ++i) write_file_atomically(file, i % 2 ? a : b);
  });
  for (int i = 0; i < 50; ++i) {
    std::string const text = read(file);
    ASSERT_TRUE(text == a || text == b) << text.size();
  }
}

TEST_F(Files, AFailureNamesTheFileAndKeepsTheOldOne) {
  fs::path const target = folder_.directory() / "taken";  // a directory: rename fails
  fs::create_directories(target / "inside");
  try {
    write_file_atomically(target, "text");
    FAIL() << "a directory was replaced";
  } catch (IoError const& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr(target.string()));
  }
  EXPECT_EQ(entries().size(), 1u);
  EXPECT_THROW(write_file_atomically(folder_.directory() / "absent" / "file", "text"), IoError);
}

TEST_F(Files, WriteAllReportsAClosedPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  write_all(ends[1], "hello", "pipe");
  char got[5];
  EXPECT_EQ(::read(ends[0], got, sizeof got), 5);
  EXPECT_EQ(std::string(got, 5), "hello");
  ::close(ends[1]);
  EXPECT_THROW(write_all(ends[1], "more", "pipe"), IoError);
  ::close(ends[0]);
}

TEST_F(Files, SyncDirectoryAcceptsWhatItCannotOpen) {
  sync_directory(folder_.directory());
  sync_directory(folder_.directory() / "absent");
  sync_directory("");
}

}  // namespace
}  // namespace tessera
