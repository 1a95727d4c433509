#include "tessera/train/report/monitors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

std::string content(std::filesystem::path const& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

/// The data of each record; the lengths and both checksums are those that tf_record() writes.
std::vector<std::string> records(std::string const& bytes) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    out.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(bytes.substr(at, length + 16), tf_record(out.back()));
    at += length + 16;
  }
  return out;
}

/// TensorBoard's own record of "brain.Event:2" without a time, byte for byte: data 0x1a 0x0d
/// "brain.Event:2", written by tensorboard 2.21's RecordWriter.
TEST(EventFile, RecordsHaveTheBytesOfTensorBoard) {
  std::string const data = std::string("\x1a\x0d", 2) + "brain.Event:2";
  std::string const expected =
      std::string("\x0f\0\0\0\0\0\0\0\x6d\x53\x2b\x09", 12) + data + "\xfc\x98\x51\x29";
  EXPECT_EQ(tf_record(data), expected);
}

TEST(EventFile, HasAHeaderAndOneRecordPerWrite) {
  ScratchFiles const files;
  std::filesystem::path file;
  {
    EventFile events(files.directory() / "runs/a", 1);
    file = events.file();
    events.write(300, {{"train/loss", 1.5}, {"lr", 0.25}});
  }
  EXPECT_TRUE(file.filename().string().starts_with("events.out.tfevents."));
  auto const all = records(content(file));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].substr(0, 1), "\x09") << "wall_time";
  EXPECT_EQ(all[0].substr(9), std::string("\x10\x00\x1a\x0d", 4) + "brain.Event:2");
  EXPECT_EQ(all[1].substr(9, 3), "\x10\xac\x02") << "step 300";
  EXPECT_EQ(all[1].substr(12), std::string("\x2a\x1e\x0a\x11\x0a\x0a", 6) + "train/loss" +
                                   std::string("\x15\x00\x00\xc0\x3f\x0a\x09\x0a\x02", 9) + "lr" +
                                   std::string("\x15\x00\x00\x80\x3e", 5));
}

TEST(EventFile, AResumeStartsASession) {
  ScratchFiles const files;
  EventFile const events(files.directory(), 5);
  auto const all = records(content(events.file()));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].substr(9), std::string("\x10\x05\x3a\x02\x08\x01", 6)) << "SessionLog.START";
}

TEST(EventFile, NeedsADirectory) {
  ScratchFiles const files;
  files.write("file", "");
  EXPECT_THROW(EventFile(files.directory() / "file/runs", 1), IoError);
}

}  // namespace
}  // namespace tessera::train
