#include "text/byte_stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

std::string numbers() {  // longer than the stream's buffer of 1 MiB
  std::string text;
  for (int i = 0; text.size() < (std::size_t{3} << 20); ++i) text += std::to_string(i) + '\n';
  return text;
}

std::string write_gzip(std::string const& file, std::string const& text) {
  gzFile const out = gzopen(file.c_str(), "wb");
  EXPECT_EQ(gzwrite(out, text.data(), static_cast<unsigned>(text.size())),
            static_cast<int>(text.size()));
  gzclose(out);
  return file;
}

TEST(ByteStream, ReadsPlainAndCompressedFilesAlike) {
  ScratchFiles const folder;
  std::string const text = numbers();
  for (std::string const& file :
       {folder.write("a", text), write_gzip((folder.directory() / "a.gz").string(), text)}) {
    ByteStream by_byte(file), by_part(file);
    std::string bytes, parts;
    while (by_byte.peek() >= 0) bytes.push_back(static_cast<char>(by_byte.get()));
    for (auto here = by_part.available(); !here.empty(); here = by_part.available()) {
      parts.append(here.substr(0, 100'000));
      by_part.skip(std::min<std::size_t>(here.size(), 100'000));
    }
    EXPECT_TRUE(bytes == text);
    EXPECT_TRUE(parts == text);
    EXPECT_EQ(by_byte.get(), -1);
  }
}

TEST(ByteStream, AByteAbove127IsNotTheEnd) {
  ScratchFiles const folder;
  ByteStream stream(folder.write("a", "\xFF"));
  EXPECT_EQ(stream.peek(), 255);
  EXPECT_EQ(stream.get(), 255);
  EXPECT_EQ(stream.get(), -1);
}

TEST(ByteStream, ErrorsNameTheFile) {
  ScratchFiles const folder;
  std::string const text = numbers();
  std::string const cut = write_gzip((folder.directory() / "cut.gz").string(), text);
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) / 2);
  ByteStream stream(cut);
  try {
    while (stream.get() >= 0) {
    }
    FAIL() << "a truncated file was read to its end";
  } catch (DataError const& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("cut.gz is damaged or cut short"));
  }
  EXPECT_THROW(ByteStream(folder.directory() / "absent"), IoError);
}

}  // namespace
}  // namespace tessera::data::detail
