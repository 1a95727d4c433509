/// Oracle: the test values of the xxHash specification (XXH3-64 of nothing), and equality of the
/// forms.
#include "tokenizer/hash.hpp"

#include <gtest/gtest.h>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

TEST(Hash, KnownValue) { EXPECT_EQ(xxh3(""), 0x2D06800538D394C2u); }

TEST(Hash, CallStreamAndFileAgree) {
  ScratchFiles const folder;
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += static_cast<char>(i * 31 >> 3);
  Xxh3Stream stream;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const part = std::min<std::size_t>(text.size() - at, at % 1000 + 1);
    stream.update(text.data() + at, part);
    at += part;
  }
  EXPECT_EQ(stream.digest(), xxh3(text));
  EXPECT_EQ(xxh3_of_file(folder.write("a", text)), xxh3(text));
  text[200'000] ^= 1;
  EXPECT_NE(stream.digest(), xxh3(text));
}

TEST(Hash, AMissingFileIsAnIoError) { EXPECT_THROW(xxh3_of_file("/no/such/file"), IoError); }

}  // namespace
}  // namespace tessera::data::detail
