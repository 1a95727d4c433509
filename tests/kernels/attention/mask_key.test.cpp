#include "attention/mask_key.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace tessera::kernels::detail {
namespace {

/// Makes dropout as the model's passes do: a stream per step, layer and site, and a first element
/// per row.
Dropout dropout_of(std::uint64_t step, std::uint64_t layer, std::uint64_t first_row) {
  return {.p = 0.1f,
          .seed = 42,
          .stream = step << 24 | layer << 4 | 3,
          .first_element = first_row * 12 * 1024 * 1024};
}

TEST(MaskKey, EveryCallOfARunHasItsOwn) {
  std::set<std::pair<std::int64_t, std::int64_t>> keys;
  std::set<std::int64_t> seeds;
  std::size_t calls = 0;
  for (std::uint64_t step = 0; step < 60; ++step)
    for (std::uint64_t layer = 0; layer < 12; ++layer)
      for (std::uint64_t micro_batch = 0; micro_batch < 8; ++micro_batch)
        for (std::uint64_t rank = 0; rank < 8; ++rank, ++calls) {
          MaskKey const key = mask_key(dropout_of(step, layer, (micro_batch * 8 + rank) * 4));
          keys.emplace(key.seed, key.offset);
          seeds.insert(key.seed);
        }
  EXPECT_EQ(keys.size(), calls);
  EXPECT_EQ(seeds.size(), calls);
}

TEST(MaskKey, IsAFunctionOfTheDropout) {
  MaskKey const key = mask_key(dropout_of(7, 3, 16));
  EXPECT_EQ(key, mask_key(dropout_of(7, 3, 16))) << "a resumed run has the same masks";
  Dropout other = dropout_of(7, 3, 16);
  other.p = 0.5f;
  EXPECT_EQ(key, mask_key(other));
  ++other.seed;
  EXPECT_NE(key, mask_key(other));
}

TEST(MaskKey, HasAnOffsetThatGeneratorsTake) {
  std::set<std::int64_t> offsets;
  for (std::uint64_t step = 0; step < 1000; ++step) {
    MaskKey const key = mask_key(dropout_of(step, 0, 0));
    EXPECT_GE(key.offset, 0);
    EXPECT_LT(key.offset, std::int64_t{1} << 31);
    EXPECT_EQ(key.offset % 4, 0);
    offsets.insert(key.offset);
  }
  EXPECT_GT(offsets.size(), 990u);
}

/// Published with the algorithm (Random123, kat_vectors, philox4x32 10).
TEST(MaskKey, IsABlockOfPhilox) {
  std::uint64_t const ones = ~std::uint64_t{0};
  MaskKey const key = mask_key({.p = 0.1f, .seed = ones, .stream = ones, .first_element = ones});
  EXPECT_EQ(static_cast<std::uint64_t>(key.seed), 0x41C83B0E408F276Dull);
  EXPECT_EQ(key.offset, 0xA20BC7C6 & 0x7FFFFFFC);
}

}  // namespace
}  // namespace tessera::kernels::detail
