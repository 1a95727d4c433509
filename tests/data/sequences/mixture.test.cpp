#include "sequences/mixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "error_of.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Mixture, WeightsAreOnePositiveNumberPerSet) {
  EXPECT_THAT(read_weights("0.7,3", 2), ElementsAre(0.7, 3.0));
  for (char const* bad : {"0.7", "0.7,0.3,1", "0.7,", "a,b", "0,1", "-1,2", "1,nan", "1,inf", ""})
    EXPECT_THAT(error_of<ConfigError>([&] { read_weights(bad, 2); }),
                HasSubstr(concat("'", bad, "'")))
        << bad;
}

TEST(Mixture, KeepsTheSharesAtEveryPoint) {
  std::vector<double> const shares = {0.5, 0.3, 0.2};
  MixtureOrder order({100, 10, 77}, {5, 3, 2});
  EXPECT_EQ(order.size(), 385);  // 77 / 0.2
  std::vector<std::set<std::int64_t>> seen(3);
  for (std::int64_t i = 0; i < order.size(); ++i) {
    auto const place = order.next();
    seen[place.set].insert(place.index);
    for (std::size_t set = 0; set < 3; ++set)
      EXPECT_LE(std::abs(static_cast<double>(order.dealt()[set]) -
                         shares[set] * static_cast<double>(i + 1)),
                1.0);
  }
  EXPECT_EQ(seen[0].size(), 100u);  // every sequence at least once
  EXPECT_EQ(seen[1].size(), 10u);
  EXPECT_EQ(seen[2].size(), 77u);
}

TEST(Mixture, EqualSetsWithEqualWeightsAlternateWithoutRepetition) {
  MixtureOrder order({3, 3}, {1, 1});
  EXPECT_EQ(order.size(), 6);
  for (std::int64_t i = 0; i < 6; ++i) {
    auto const place = order.next();
    EXPECT_EQ(place.set, static_cast<std::size_t>(i % 2));
    EXPECT_EQ(place.index, i / 2);
  }
}

}  // namespace
}  // namespace tessera::data::detail
