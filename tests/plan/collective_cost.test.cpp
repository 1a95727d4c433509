#include "tessera/plan/collective_cost.hpp"

#include <gtest/gtest.h>

#include "plan_fixture.hpp"
#include "tessera/core/error.hpp"

namespace tessera::plan {
namespace {

TEST(WireBytes, OneRankPerNodeSendsToTheNextNode) {
  EXPECT_DOUBLE_EQ(wire_bytes(80.0, {1, 8}).intra_node, 80.0);
  EXPECT_DOUBLE_EQ(wire_bytes(80.0, {1, 8}).inter_node, 0.0);
  EXPECT_DOUBLE_EQ(wire_bytes(80.0, {2, 8}).inter_node, 10.0);
  EXPECT_DOUBLE_EQ(wire_bytes(80.0, {2, 8}).intra_node, 70.0);
  EXPECT_DOUBLE_EQ(wire_bytes(80.0, {16, 1}).inter_node, 80.0);
}

TEST(CollectiveCost, OfAGroupIsThatOfItsNodes) {
  auto const of = [](char const* group, int ranks) {
    auto const c = cluster_of({4, 8}, group, ranks);
    return std::pair(c.nodes, c.ranks_per_node);
  };
  EXPECT_EQ(of("", 0), std::pair(4, 8));
  EXPECT_EQ(of("shard group 0", 8), std::pair(1, 8));
  EXPECT_EQ(of("shard group 0", 4), std::pair(1, 4));
  EXPECT_EQ(of("shard group 0", 16), std::pair(2, 8));
  EXPECT_EQ(of("replica group 0", 4), std::pair(4, 1)) << "of groups of 8";
  EXPECT_EQ(of("replica group 0", 8), std::pair(4, 2)) << "of groups of 4";
  EXPECT_EQ(of("replica group 0", 2), std::pair(2, 1)) << "of groups of 16";
}

TEST(CollectiveCost, OfARingIsLatencyOfStepsAndBytesOverTheSlowestLink) {
  auto m = test::round_machine();
  m.intra_node = {1e-6, 400e9};
  m.inter_node = {1e-5, 25e9};
  double const s = 1e9;
  EXPECT_DOUBLE_EQ(seconds_of({"all_gather", s}, {1, 1}, m), 0.0);
  EXPECT_DOUBLE_EQ(seconds_of({"all_gather", s}, {1, 8}, m), 7e-6 + 7.0 / 8 * s / 400e9);
  // 8 adapters of 25 GB/s are slower than 400 GB/s; 3 of the 31 steps cross nodes
  EXPECT_DOUBLE_EQ(seconds_of({"reduce_scatter", s}, {4, 8}, m),
                   28e-6 + 3e-5 + 31.0 / 32 * s / 200e9);
  EXPECT_DOUBLE_EQ(seconds_of({"all_gather", s}, {4, 1}, m), 3e-5 + 0.75 * s / 25e9);
}

TEST(CollectiveCost, ASmallAllReduceTakesATree) {
  auto m = test::round_machine();
  m.intra_node = {1e-6, 400e9};
  m.inter_node = {1e-5, 25e9};
  EXPECT_DOUBLE_EQ(seconds_of({"all_reduce", 0.0}, {1024, 8}, m), 2 * (7e-6 + 10 * 1e-5));
  double const large = seconds_of({"all_reduce", 1e12}, {2, 8}, m);
  EXPECT_NEAR(large, 2 * 15.0 / 16 * 1e12 / 200e9, 1e-3) << "a ring";
}

TEST(CollectiveCost, SeveralNodesNeedTheirNetwork) {
  auto m = test::round_machine();
  m.inter_node = {};
  EXPECT_THROW((void)seconds_of({"all_gather", 1.0}, {2, 2}, m), ConfigError);
  EXPECT_NO_THROW((void)seconds_of({"all_gather", 1.0}, {1, 4}, m));
  m.intra_node = {};
  EXPECT_THROW((void)seconds_of({"all_gather", 1.0}, {1, 4}, m), ConfigError);
  EXPECT_DOUBLE_EQ(seconds_of({"all_gather", 1.0}, {1, 1}, m), 0.0);
}

}  // namespace
}  // namespace tessera::plan
