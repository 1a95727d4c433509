#include "save/detail/commit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::checkpoint::detail {
namespace {

std::vector<SlowWriter> slow(std::vector<double> const& seconds) {
  std::vector<WrittenShard> shards(seconds.size());
  for (std::size_t rank = 0; rank < seconds.size(); ++rank)
    shards[rank].microseconds = static_cast<std::int64_t>(1e6 * seconds[rank]);
  return slow_writers(shards);
}

TEST(Commit, NamesTheRankWhoseDiskIsSlow) {
  auto const found = slow({1.0, 1.2, 4.0, 0.9});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_DOUBLE_EQ(found[0].seconds, 4.0);
  EXPECT_DOUBLE_EQ(found[0].others, 1.0);
  EXPECT_EQ(slow({0.1, 0.9}).size(), 1u);
}

TEST(Commit, NamesNobodyForSmallDifferences) {
  EXPECT_TRUE(slow({1.0, 1.9, 1.0}).empty()) << "less than twice as long";
  EXPECT_TRUE(slow({0.01, 0.4}).empty()) << "less than half a second";
  EXPECT_TRUE(slow({9.0}).empty());
  EXPECT_TRUE(slow({}).empty());
}

}  // namespace
}  // namespace tessera::checkpoint::detail
