/// Exact sums against integers of 128 bits and against values whose sum is known.
#include "tessera/core/exact_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tessera {
namespace {

ExactSum sum_of(std::vector<double> const& values) {
  ExactSum sum;
  for (double const value : values) sum.add(value);
  sum.carry();
  return sum;
}

bool same_digits(ExactSum const& a, ExactSum const& b) {
  return std::equal(a.data().begin(), a.data().end(), b.data().begin());
}

TEST(ExactSum, OneValueIsItself) {
  for (double const value : {0.0, 1.0, -1.0, 0.1, -3.5e300, std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::min(), 0x1p-1040, -0x1.8p-200})
    EXPECT_EQ(sum_of({value}).value(), value);
}

TEST(ExactSum, LosesNothingToLargeValues) {
  EXPECT_EQ(sum_of({1e300, 1.0, -1e300}).value(), 1.0);
  EXPECT_EQ(sum_of({-1e300, -0x1p-1000, 1e300}).value(), -0x1p-1000);
}

TEST(ExactSum, RoundsToTheNearestAndToEvenBetweenTwo) {
  double const ulp = 0x1p-52;
  EXPECT_EQ(sum_of({1.0, ulp / 2}).value(), 1.0);
  EXPECT_EQ(sum_of({1.0, ulp / 2, 0x1p-900}).value(), 1.0 + ulp);
  EXPECT_EQ(sum_of({1.0 + ulp, ulp / 2}).value(), 1.0 + 2 * ulp);
  EXPECT_EQ(sum_of({-1.0, -ulp / 2, -0x1p-900}).value(), -1.0 - ulp);
}

/// Multiples of 2^-20 below 2^40 are integers of 128 bits.
TEST(ExactSum, IsThatOfIntegersInAnyOrderAndAnyParts) {
  std::mt19937_64 random(7);
  std::vector<double> values;
  __extension__ __int128 expected = 0;
  for (int i = 0; i < 4000; ++i) {
    auto const units = static_cast<std::int64_t>(random() >> 12) - (std::int64_t{1} << 51);
    expected += units;
    values.push_back(std::ldexp(static_cast<double>(units), -20));
  }
  auto const whole = sum_of(values);
  EXPECT_EQ(whole.value(), std::ldexp(static_cast<double>(expected), -20));
  std::shuffle(values.begin(), values.end(), random);
  EXPECT_TRUE(same_digits(whole, sum_of(values)));
  ExactSum parts;
  for (int first = 0; first < 4000; first += 800)
    parts.add(sum_of({values.begin() + first, values.begin() + first + 800}).data());
  parts.carry();
  EXPECT_TRUE(same_digits(whole, parts));
}

TEST(ExactSum, CountsValuesThatAreNotFinite) {
  auto const sum = sum_of({1.0, std::numeric_limits<double>::infinity(), NAN});
  EXPECT_FALSE(sum.is_finite());
  EXPECT_TRUE(std::isnan(sum.value()));
  EXPECT_EQ(sum.data().back(), 2);
}

}  // namespace
}  // namespace tessera
