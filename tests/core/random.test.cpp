#include "tessera/core/random.hpp"

#include <gtest/gtest.h>

namespace tessera {
namespace {

/// Known answers published with the algorithm (Random123, kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  auto const zero = Philox{0, 0}(0);
  EXPECT_EQ(zero.v[0], 0x6627e8d5u);
  EXPECT_EQ(zero.v[1], 0xe169c58du);
  EXPECT_EQ(zero.v[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.v[3], 0x9b00dbd8u);
  auto const ones = Philox{~0ull, ~0ull}(~0ull);
  EXPECT_EQ(ones.v[0], 0x408f276du);
  EXPECT_EQ(ones.v[1], 0x41c83b0eu);
  EXPECT_EQ(ones.v[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.v[3], 0x6d5451fdu);
}

TEST(Philox, UniformHasTheRightMean) {
  Philox const random{42, 7};
  double sum = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    float const u = random.uniform(i);
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

}  // namespace
}  // namespace tessera
