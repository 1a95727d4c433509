#include "host/node_windows.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tessera/topology/rank_groups.hpp"

namespace tessera::comm::detail {
namespace {

using topology::NodeIndex;

/// Each node carries every shard exactly once, inside windows that end within the ranks.
void expect_complete(std::vector<NodeIndex> const& nodes) {
  NodeWindows const windows(nodes);
  for (int node = 0; node < windows.nodes(); ++node) {
    auto const& members = windows.members(node);
    int const size = static_cast<int>(members.size());
    for (int w = 0; w < windows.windows(node); ++w) {
      EXPECT_GE(windows.start(node, w), 0);
      EXPECT_LE(windows.start(node, w) + size, windows.ranks());
    }
    for (int shard = 0; shard < windows.ranks(); ++shard) {
      int const window = windows.window_of(node, shard);
      ASSERT_LT(window, windows.windows(node));
      auto const place = static_cast<std::size_t>(shard - windows.start(node, window));
      ASSERT_LT(place, members.size());
      EXPECT_EQ(windows.carrier(node, shard), members[place]);
    }
  }
}

TEST(NodeWindows, CoverEveryShardOnEveryNode) {
  for (char const* const sizes :
       {"1", "4", "2,2", "2,1", "1,2", "3,2,2", "1,1,5", "8,8,8", "4,3,1"}) {
    int ranks = 0;
    for (char const* c = sizes; *c; ++c) ranks += *c == ',' ? 0 : *c - '0';
    expect_complete(topology::nodes_of_sizes(sizes, ranks));
  }
  expect_complete({NodeIndex(4), NodeIndex(2), NodeIndex(4), NodeIndex(2), NodeIndex(4)});
}

/// Equal nodes of consecutive ranks: a rank carries its own shard, so nothing moves inside a node.
TEST(NodeWindows, RanksOfEqualNodesCarryTheirOwnShards) {
  NodeWindows const windows(topology::nodes_of_sizes("4,4,4", 12));
  for (int rank = 0; rank < 12; ++rank) {
    EXPECT_EQ(windows.carrier(windows.node_of(rank), rank), rank);
    EXPECT_EQ(windows.carrier(0, rank), rank % 4);
  }
  EXPECT_EQ(windows.windows(0), 3);
  EXPECT_EQ(windows.largest_node(), 4);
}

}  // namespace
}  // namespace tessera::comm::detail
