#include "text/byte_stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#ifdef TESSERA_HAVE_ZSTD
#include <zstd.h>
#endif

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

std::string read_all(std::filesystem::path const& file) {
  auto const source = open_source(file);
  std::string out, part(70'000, '\0');
  while (std::size_t const got = source->read(part.data(), part.size())) out.append(part, 0, got);
  EXPECT_EQ(source->position(), static_cast<std::int64_t>(std::filesystem::file_size(file)));
  return out;
}

TEST(ByteSource, ReadsAPlainFile) {
  ScratchFiles const folder;
  EXPECT_EQ(read_all(folder.write("a", "some bytes")), "some bytes");
  EXPECT_EQ(read_all(folder.write("b", "")), "");
  EXPECT_THROW(open_source(folder.directory() / "absent"), IoError);
}

#ifdef TESSERA_HAVE_ZSTD

std::string compressed(std::string const& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string numbers() {
  std::string text;
  for (int i = 0; text.size() < (std::size_t{3} << 20); ++i) text += std::to_string(i) + '\n';
  return text;
}

TEST(ByteSource, ReadsZstdInOneFrameOrSeveral) {
  ScratchFiles const folder;
  std::string const text = numbers();
  EXPECT_TRUE(read_all(folder.write("a.zst", compressed(text))) == text);
  EXPECT_TRUE(read_all(folder.write("b.zst", compressed(text) + compressed("more"))) ==
              text + "more");
  EXPECT_EQ(read_all(folder.write("c.zst", compressed(""))), "");
}

TEST(ByteSource, DamagedZstdNamesTheFile) {
  ScratchFiles const folder;
  std::string bytes = compressed(numbers());
  auto const error = [&](std::string const& content) {
    try {
      read_all(folder.write("a.zst", content));
    } catch (DataError const& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(error(bytes.substr(0, bytes.size() / 2)),
              ::testing::HasSubstr("a.zst is damaged or cut short: it ends inside"));
  bytes[bytes.size() / 2] ^= 0x20;
  bytes[bytes.size() / 3] ^= 0x20;
  EXPECT_THAT(error(bytes.substr(0, bytes.size() / 2 + 100)),
              ::testing::HasSubstr("a.zst is damaged or cut short"));
}

#endif

}  // namespace
}  // namespace tessera::data::detail
