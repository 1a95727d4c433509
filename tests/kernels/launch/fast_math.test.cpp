#include "launch/fast_math.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

TEST(FastMath, TanhIsWithinSixUnitsInTheLastPlace) {
  double worst = 0.0;
  for (double x = 1e-6; x < 12.0; x *= 1.0003) {
    auto const at = static_cast<float>(x);
    double const want = std::tanh(static_cast<double>(at));
    worst = std::max(worst, std::abs(fast_tanh(at) - want) / want);
    EXPECT_EQ(fast_tanh(-at), -fast_tanh(at));
  }
  EXPECT_LT(worst, 4e-7);
  float const infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(fast_tanh(0.0f), 0.0f);
  EXPECT_NEAR(fast_tanh(infinity), 1.0, 3e-7);
  EXPECT_NEAR(fast_tanh(-infinity), -1.0, 3e-7);
  EXPECT_TRUE(std::isnan(fast_tanh(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastMath, Erf) {
  double worst = 0.0;
  for (double x = 1e-6; x < 12.0; x *= 1.0003) {
    auto const at = static_cast<float>(x);
    worst = std::max(worst, std::abs(fast_erf(at) - std::erf(static_cast<double>(at))));
    EXPECT_EQ(fast_erf(-at), -fast_erf(at));
  }
  EXPECT_LT(worst, 3e-7);
  float const infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(fast_erf(0.0f), 0.0f);
  EXPECT_NEAR(fast_erf(infinity), 1.0, 1e-7);
  EXPECT_TRUE(std::isnan(fast_erf(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastMath, SoftCapAndItsSlope) {
  SoftCap const cap(30.0f);
  for (float x = -200.0f; x < 200.0f; x += 0.7f) {
    double const t = std::tanh(static_cast<double>(x) / 30.0);
    EXPECT_NEAR(cap.value(x), 30.0 * t, 1.5e-5);
    EXPECT_NEAR(cap.slope_at(cap.value(x)), 1.0 - t * t, 1e-6);
  }
  EXPECT_TRUE(cap.active());
  EXPECT_FALSE(SoftCap(0.0f).active());
}

TEST(FastMath, Logistic) {
  for (float x = -80.0f; x < 80.0f; x += 0.37f) {
    double const want = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(logistic(x), want, 2.5e-7 * want);
  }
  EXPECT_EQ(logistic(-1e4f), 0.0f);
  EXPECT_EQ(logistic(1e4f), 1.0f);
}

/// Relative errors of PTX ISA's ex2.approx (2^-22), of the rounded argument and of rcp.approx.
TEST(FastMath, TheDevicesLogisticIsCloseToTheFunction) {
  for (float x = -80.0f; x < 80.0f; x += 0.37f) {
    double const want = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(logistic_by_instructions(x), want, (4e-7 + 1e-7 * std::abs(x)) * want) << x;
  }
  EXPECT_EQ(logistic_by_instructions(-1e4f), 0.0f);
  EXPECT_EQ(logistic_by_instructions(1e4f), 1.0f);
  EXPECT_TRUE(std::isnan(logistic_by_instructions(std::nanf(""))));
}

TEST(FastMath, ResultsBelowTheSmallestNormalNumberAreFlushed) {
  EXPECT_EQ(ex2_approx(-126.0f), std::numeric_limits<float>::min());
  EXPECT_EQ(ex2_approx(-127.0f), 0.0f);
  EXPECT_EQ(rcp_approx(3e38f), 0.0f);
  EXPECT_EQ(rcp_approx(4.0f), 0.25f);
}

}  // namespace
}  // namespace tessera::kernels::detail
