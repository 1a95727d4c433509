#include "format/detail/chunk_reader.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace tessera::checkpoint::detail {
namespace {

std::vector<float> waves(std::int64_t numel) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < numel; ++i) out.push_back(std::sin(static_cast<float>(i)));
  return out;
}

TEST(ChunkCodec, KeepsEveryBit) {
  auto const values = waves(1000);
  for (int const level : {1, 4, 9})
    for (std::int64_t const numel : {1, 7, 1000}) {
      std::vector<char> stored, scratch;
      compress_chunk(values.data(), numel, 1000, level, stored);
      EXPECT_LE(static_cast<std::int64_t>(stored.size()), max_stored_bytes(1000));
      std::vector<float> back(1000, -1.0f);
      ASSERT_TRUE(decompress_chunk(stored, 1000, back.data(), 4000, scratch));
      EXPECT_EQ(std::memcmp(back.data(), values.data(), static_cast<std::size_t>(numel) * 4), 0);
      for (std::size_t i = static_cast<std::size_t>(numel); i < back.size(); ++i)
        ASSERT_EQ(back[i], 0.0f) << "the rest of the chunk is zeros";
    }
}

TEST(ChunkCodec, GivesTheFirstBytesOfAChunk) {
  auto const values = waves(100);
  std::vector<char> stored, scratch;
  compress_chunk(values.data(), 100, 100, 4, stored);
  std::vector<float> back(100, -1.0f);
  ASSERT_TRUE(decompress_chunk(stored, 100, back.data(), 40, scratch));
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(back[i], values[i]);
  EXPECT_EQ(back[10], -1.0f) << "nothing is written behind them";
}

TEST(ChunkCodec, RefusesOtherStreams) {
  auto const values = waves(100);
  std::vector<char> stored, scratch;
  std::vector<float> back(200);
  compress_chunk(values.data(), 100, 100, 4, stored);
  EXPECT_FALSE(decompress_chunk(stored, 99, back.data(), 396, scratch)) << "too long";
  EXPECT_FALSE(decompress_chunk(stored, 101, back.data(), 404, scratch)) << "too short";
  auto cut = stored;
  cut.pop_back();
  EXPECT_FALSE(decompress_chunk(cut, 100, back.data(), 400, scratch));
  auto flipped = stored;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 1);
  EXPECT_FALSE(decompress_chunk(flipped, 100, back.data(), 400, scratch));
  EXPECT_FALSE(decompress_chunk({}, 100, back.data(), 400, scratch));
}

}  // namespace
}  // namespace tessera::checkpoint::detail
