#include "tessera/topology/rank_groups.hpp"

#include <gtest/gtest.h>

namespace tessera::topology {
namespace {

int size_of(std::vector<int> const& nodes) {
  std::vector<NodeIndex> out;
  for (int const node : nodes) out.push_back(NodeIndex(node));
  return uniform_node_size(out);
}

TEST(NodeSize, IsThatOfNodesThatAreAlike) {
  EXPECT_EQ(size_of({0}), 1);
  EXPECT_EQ(size_of({0, 0, 1, 1}), 2);
  EXPECT_EQ(size_of({1, 1, 1, 0, 0, 0}), 3);
  EXPECT_EQ(size_of({0, 1, 2}), 1);
}

TEST(NodeSize, IsZeroForOthers) {
  EXPECT_EQ(size_of({0, 0, 1}), 0);
  EXPECT_EQ(size_of({0, 1, 0, 1}), 0) << "ranks that are not consecutive";
  EXPECT_EQ(size_of({0, 0, 1, 2}), 0);
  EXPECT_EQ(size_of({0, 1, 1, 0}), 0);
  EXPECT_EQ(size_of({}), 0);
}

}  // namespace
}  // namespace tessera::topology
