#include "tessera/core/median.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Median, OfTwoInTheMiddleIsTheHigherOne) {
  EXPECT_EQ(median<double>({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median<int>({4, 1, 3, 2}), 3);
  EXPECT_EQ(median<int>({7}), 7);
  EXPECT_EQ(median<double>({}), 0.0);
}

/// Against the median of the values that are left.
TEST(Median, OfOthersLeavesOutOneValue) {
  EXPECT_THAT(medians_of_others<int>({}), testing::IsEmpty());
  for (std::vector<int> const& values :
       {std::vector<int>{1, 2}, {5, 5}, {3, 1, 2}, {2, 2, 1}, {4, 1, 3, 2}, {1, 2, 2, 2, 9}}) {
    auto const found = medians_of_others(values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto others = values;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_EQ(found[i], median(others)) << "without value " << i;
    }
  }
}

}  // namespace
}  // namespace tessera
