#include "detail/lm_head.hpp"

#include <gtest/gtest.h>

namespace tessera::model::detail {
namespace {

using Chunks = LmHead::Chunks;
using memory::Tier;

TEST(LmHeadChunks, OfGpt2) {
  EXPECT_EQ(Chunks::of(8192, 50257, Dtype::bf16, Tier::host), (Chunks{328, 328, 50257}));
  EXPECT_EQ(Chunks::of(8192, 50257, Dtype::bf16, Tier::device), (Chunks{2048, 8192, 50304}));
  EXPECT_EQ(Chunks::of(32768, 50257, Dtype::bf16, Tier::device), (Chunks{2048, 8192, 50304}));
  EXPECT_EQ(Chunks::of(8192, 50257, Dtype::fp32, Tier::device), (Chunks{2048, 2048, 50304}));
}

TEST(LmHeadChunks, StayWithinTheirBytesAndCoverAllRows) {
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  for (std::int64_t rows : {0, 1, 2, 333, 2669, 10672, 10673, 100000}) {
    for (std::int64_t vocabulary : {1, 131, 50257, 300000000}) {
      for (Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        for (Tier tier : {Tier::host, Tier::device}) {
          auto const c = Chunks::of(rows, vocabulary, dtype, tier);
          SCOPED_TRACE(::testing::Message() << rows << " x " << vocabulary << ": " << c.logits << ", " << c.gradients << ", " << c.row);
          EXPECT_GE(c.row, vocabulary);
          EXPECT_LE(c.logits, c.gradients);
          EXPECT_LE(c.gradients, rows);
          EXPECT_EQ(c.logits > 0, rows > 0);
          EXPECT_TRUE(c.logits <= 1 || c.logits * c.row * 4 <= (tier == Tier::device ? 512 : 64) * mib);
          EXPECT_TRUE(c.gradients == c.logits || c.gradients * c.row * 2 <= 1024 * mib);
          EXPECT_TRUE(c.gradients == c.logits || (dtype != Dtype::fp32 && tier == Tier::device));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::model::detail
