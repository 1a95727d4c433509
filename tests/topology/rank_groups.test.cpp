#include "tessera/topology/rank_groups.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::topology {
namespace {

TEST(RankGroups, NodesAndRailsOfUnequalNodes) {
  auto const nodes = nodes_of_sizes("2,1,3", 6);
  auto const node = node_group(nodes, 4);
  EXPECT_EQ(node.color, 2);
  EXPECT_EQ(node.size, 3);
  EXPECT_EQ(node.name, "node 2");
  EXPECT_EQ(rail_group(nodes, 0).size, 3) << "every node has a first rank";
  EXPECT_EQ(rail_group(nodes, 4).color, 1);
  EXPECT_EQ(rail_group(nodes, 4).size, 2) << "ranks 1 and 4";
  EXPECT_EQ(rail_group(nodes, 5).size, 1);
}

TEST(RankGroups, RanksOfANodeNeedNotBeConsecutive) {
  std::vector<NodeIndex> const nodes{NodeIndex(0), NodeIndex(1), NodeIndex(0), NodeIndex(1)};
  EXPECT_EQ(rail_group(nodes, 2).color, 1);
  EXPECT_EQ(rail_group(nodes, 3).color, 1);
  EXPECT_EQ(node_group(nodes, 2).color, 0);
}

/// Every rank is the one common member of its shard group and its replica group.
TEST(RankGroups, ShardsAndReplicasCrossInOneRank) {
  for (int const size : {1, 2, 3, 6}) {
    for (int a = 0; a < 6; ++a)
      for (int b = 0; b < 6; ++b)
        EXPECT_EQ(shard_group(6, a, size).color == shard_group(6, b, size).color &&
                      replica_group(6, a, size).color == replica_group(6, b, size).color,
                  a == b);
    EXPECT_EQ(shard_group(6, 5, size).size * replica_group(6, 5, size).size, 6);
  }
  EXPECT_EQ(shard_group(6, 5, 2).name, "shard group 2");
  EXPECT_EQ(replica_group(6, 5, 2).name, "replica group 1");
}

TEST(RankGroups, RefusesSizesThatDoNotDivide) {
  EXPECT_THROW((void)shard_group(6, 0, 4), ConfigError);
  EXPECT_THROW((void)replica_group(6, 0, 0), ConfigError);
}

TEST(RankGroups, RefusesNodesThatAreNotTheJob) {
  for (auto const* const text : {"", "2,", "2,x", "0,4", "-1,5", "2,1", "4,1", "2 2"})
    EXPECT_THROW((void)nodes_of_sizes(text, 4), ConfigError) << text;
}

}  // namespace
}  // namespace tessera::topology
