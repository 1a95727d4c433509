#include "tessera/core/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera {
namespace {

/// Value of a binary16 pattern by its definition (IEEE 754-2019, section 3.4).
double half_value(std::uint16_t bits) {
  int const exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double const sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == 31)
    return fraction ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

TEST(Float16, EveryPatternConvertsExactlyAndBack) {
  for (std::uint32_t b = 0; b < 65536; ++b) {
    float16 h;
    h.bits = static_cast<std::uint16_t>(b);
    double const expected = half_value(h.bits);
    float const got = h;
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << b;
    } else {
      EXPECT_EQ(static_cast<double>(got), expected) << b;
      EXPECT_EQ(float16(got).bits, h.bits) << b;
    }
  }
}

TEST(Float16, RoundsToNearestEvenBetweenNeighbors) {
  for (std::uint32_t b = 0; b < 0x7BFF; ++b) {
    float16 lo, hi;
    lo.bits = static_cast<std::uint16_t>(b);
    hi.bits = static_cast<std::uint16_t>(b + 1);
    float const mid = 0.5f * (static_cast<float>(lo) + static_cast<float>(hi));
    EXPECT_EQ(float16(mid).bits, b % 2 == 0 ? b : b + 1);
    EXPECT_EQ(float16(std::nextafter(mid, 1e9f)).bits, b + 1);
    EXPECT_EQ(float16(std::nextafter(mid, 0.0f)).bits, b);
  }
}

TEST(Float16, OverflowsToInfinity) {
  EXPECT_EQ(float16(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(float16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(float16(-1e30f).bits, 0xFC00);
  EXPECT_TRUE(std::isnan(static_cast<float>(float16(std::nanf("")))));
}

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(bfloat16(1.0f).bits, 0x3F80);
  EXPECT_EQ(bfloat16(std::bit_cast<float>(0x3F808000u)).bits, 0x3F80);  // tie, even below
  EXPECT_EQ(bfloat16(std::bit_cast<float>(0x3F818000u)).bits, 0x3F82);  // tie, even above
  EXPECT_EQ(bfloat16(std::bit_cast<float>(0x3F808001u)).bits, 0x3F81);
  EXPECT_EQ(bfloat16(std::numeric_limits<float>::infinity()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0x7F800001u)))));
}

TEST(Dtype, NamesGoBothWays) {
  for (auto d : {Dtype::fp32, Dtype::fp16, Dtype::bf16, Dtype::fp64, Dtype::int32, Dtype::int64,
                 Dtype::uint8})
    EXPECT_EQ(dtype_from_name(name_of(d)), d);
  EXPECT_EQ(dtype_from_name("torch.bfloat16"), Dtype::bf16);
}

}  // namespace
}  // namespace tessera
