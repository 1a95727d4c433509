#include "detail/fast_math.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "detail/dropout.hpp"

namespace tessera::kernels::detail {
namespace {

TEST(FastMath, ExpIsWithinOneUnitInTheLastPlace) {
  double worst = 0.0;
  for (double x = -87.33; x < 88.72; x += 3.1e-4) {
    auto const at = static_cast<float>(x);
    double const want = std::exp(static_cast<double>(at));
    worst = std::max(worst, std::abs(fast_exp(at) - want) / want);
  }
  EXPECT_LT(worst, 1.2e-7);
}

TEST(FastMath, ExpAtTheEnds) {
  float const infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(fast_exp(0.0f), 1.0f);
  EXPECT_EQ(fast_exp(-88.0f), 0.0f);
  EXPECT_EQ(fast_exp(-1e30f), 0.0f);
  EXPECT_EQ(fast_exp(-infinity), 0.0f);
  EXPECT_EQ(fast_exp(89.0f), infinity);
  EXPECT_EQ(fast_exp(infinity), infinity);
  EXPECT_TRUE(std::isnan(fast_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastMath, Logistic) {
  for (float x = -80.0f; x < 80.0f; x += 0.37f) {
    double const want = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(logistic(x), want, 2.5e-7 * want);
  }
  EXPECT_EQ(logistic(-1e4f), 0.0f);
  EXPECT_EQ(logistic(1e4f), 1.0f);
}

TEST(PhiloxBlocks, AreThoseOfTheScalarGenerator) {
  Philox const random{0x0123456789ABCDEFull, 0xFEDCBA9876543210ull};
  for (std::uint64_t first : {0ull, 5ull, 0xFFFFFFF9ull, 0x1FFFFFFFFull}) {
    std::uint32_t bits[philox_capacity(4 * 37)];
    philox_batch(random, first, 37, bits);
    for (std::uint64_t b = 0; b < 37; ++b) {
      Philox::Block const want = random(first + b);
      for (std::uint64_t k = 0; k < 4; ++k)
        ASSERT_EQ(bits[4 * b + k], want.v[k]) << "block " << first + b;
    }
  }
}

TEST(DropoutFactors, DoNotDependOnWhereARangeBegins) {
  DropoutFactors const factors(Dropout{0.3f, 11, 5, 1000003});
  for (std::uint64_t begin = 0; begin < 9; ++begin) {
    for (int count : {1, 2, 3, 5, 64, 255, 256}) {
      float out[256];
      factors.fill(begin, count, out);
      for (int i = 0; i < count; ++i) {
        bool const dropped =
            factors.random.uniform(1000003 + begin + static_cast<std::uint64_t>(i)) < 0.3f;
        ASSERT_EQ(out[i], dropped ? 0.0f : factors.keep) << begin << " + " << i;
      }
    }
  }
}

TEST(DropoutFactors, CertainDropIsZeroNotNan) {
  float out[4];
  DropoutFactors(Dropout{1.0f, 1, 1, 0}).fill(0, 4, out);
  for (float f : out) EXPECT_EQ(f, 0.0f);
}

}  // namespace
}  // namespace tessera::kernels::detail
