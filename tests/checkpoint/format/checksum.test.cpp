#include "format/detail/checksum.hpp"

#include <gtest/gtest.h>

namespace tessera::checkpoint::detail {
namespace {

TEST(Checksum, HexadecimalTextGoesBackAndForth) {
  std::vector<std::uint64_t> const sums{0, 1, 0x0123456789abcdefu, ~std::uint64_t{0}};
  EXPECT_EQ(to_hex({0xabcu}), "0000000000000abc");
  std::vector<std::uint64_t> back;
  ASSERT_TRUE(from_hex(to_hex(sums), back));
  EXPECT_EQ(back, sums);
  for (auto const* wrong : {"0", "0000000000000abC", "0000000000000abg", "0000000000000abc0"}) {
    std::vector<std::uint64_t> out;
    EXPECT_FALSE(from_hex(wrong, out)) << wrong;
  }
}

TEST(Checksum, ChunksGrowUntilThereAreFewEnough) {
  EXPECT_EQ(checksum_chunk_for(0), smallest_checksum_chunk);
  EXPECT_EQ(checksum_chunk_for(smallest_checksum_chunk * 1'000'000), smallest_checksum_chunk);
  EXPECT_EQ(checksum_chunk_for(smallest_checksum_chunk * 1'000'001), 2 * smallest_checksum_chunk);
  EXPECT_EQ(checksum_chunk_for(INT64_MAX), largest_checksum_chunk);
  EXPECT_EQ(chunk_count(1, 4), 1);
  EXPECT_EQ(chunk_count(8, 4), 2);
}

/// Values of the reference implementation (xxhsum -H3).
TEST(Checksum, IsXxh3) {
  EXPECT_EQ(to_hex({xxh3("", 0)}), "2d06800538d394c2");
  EXPECT_NE(xxh3("a", 1), xxh3("b", 1));
}

}  // namespace
}  // namespace tessera::checkpoint::detail
