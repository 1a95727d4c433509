#include "tessera/plan/step_time.hpp"

#include <gtest/gtest.h>

#include "plan_fixture.hpp"
#include "tessera/core/error.hpp"

namespace tessera::plan {
namespace {

TEST(WireBytes, OneRankPerNodeSendsToTheNextNode) {
  auto const of = [](Cluster const& cluster) {
    return wire_bytes(80.0, {"all_gather", 160.0}, cluster, nullptr);
  };
  EXPECT_DOUBLE_EQ(of({1, 8}).intra_node, 80.0);
  EXPECT_DOUBLE_EQ(of({1, 8}).inter_node, 0.0);
  EXPECT_DOUBLE_EQ(of({2, 8}).inter_node, 10.0);
  EXPECT_DOUBLE_EQ(of({2, 8}).intra_node, 70.0);
  EXPECT_DOUBLE_EQ(of({16, 1}).inter_node, 80.0);
}

/// Three nodes of four: a rank has eleven peers, eight of them on two other nodes.
TEST(WireBytes, OfHostsDependOnTheLevels) {
  auto const of = [](comm::Levels levels, char const* name, double bytes,
                     MachineProfile const* machine) {
    return wire_bytes(11.0, {name, bytes}, {3, 4, levels}, machine);
  };
  EXPECT_DOUBLE_EQ(of(comm::Levels::flat, "all_gather", 12, nullptr).inter_node, 8.0);
  EXPECT_DOUBLE_EQ(of(comm::Levels::flat, "all_gather", 12, nullptr).intra_node, 3.0);
  EXPECT_DOUBLE_EQ(of(comm::Levels::two, "reduce_scatter", 12, nullptr).inter_node, 2.0);
  EXPECT_DOUBLE_EQ(of(comm::Levels::two, "reduce_scatter", 12, nullptr).intra_node, 9.0);
  EXPECT_DOUBLE_EQ(of(comm::Levels::two, "all_to_all", 12, nullptr).inter_node, 8.0)
      << "has one level only";
  auto m = test::round_machine();  // the latency inside is too long for small messages
  m.intra_node = {1e-3, 1e10};
  m.inter_node = {1e-6, 1e9};
  EXPECT_DOUBLE_EQ(of(comm::Levels::automatic, "all_gather", 12, &m).inter_node, 8.0);
  EXPECT_DOUBLE_EQ(of(comm::Levels::automatic, "all_gather", 1e9, &m).inter_node, 2.0);
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
  EXPECT_EQ(of("rail 3", 4), std::pair(4, 1)) << "one rank per node";
  EXPECT_EQ(cluster_of({4, 8, comm::Levels::two}, "shard group 0", 16).host_levels,
            comm::Levels::two);
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

/// NCCL takes the protocol that its own model says is faster: latency decides small operations,
/// bandwidth large ones.
TEST(CollectiveCost, TheFastestProtocolCounts) {
  auto m = test::round_machine();
  m.intra_node = {3e-6, 400e9};
  m.inter_node = {14e-6, 25e9};
  m.protocols = {{2e-6, 4e-6, 0.92}};
  EXPECT_DOUBLE_EQ(seconds_of({"all_gather", 0.0}, {4, 8}, m), 28 * 2e-6 + 3 * 4e-6);
  double const pass = 31.0 / 32 * 1e12 / 200e9;
  EXPECT_DOUBLE_EQ(seconds_of({"all_gather", 1e12}, {4, 8}, m), 28 * 3e-6 + 3 * 14e-6 + pass);
  auto simple = m;
  simple.protocols.clear();
  for (double bytes = 1; bytes < 1e12; bytes *= 4)
    EXPECT_LE(seconds_of({"all_gather", bytes}, {64, 8}, m),
              seconds_of({"all_gather", bytes}, {64, 8}, simple));
}

/// docs/explanation/collectives.md#two-levels: flat (N-1) a + L across, two levels
/// (M-1) a + 2 M b + across + n / B with across = n (M-1)/M over a node's links.
TEST(CollectiveCost, HostsOfSeveralNodesHaveTheLevelsOfTheRun) {
  auto m = test::round_machine();
  m.intra_node = {1e-6, 10e9};
  m.inter_node = {1e-5, 1e9};
  double const n = 1e9, across = n * 2 / 3 / 4e9;
  auto const seconds = [&](comm::Levels levels, char const* name, double bytes) {
    return seconds_of({name, bytes}, {3, 4, levels}, m);
  };
  double const flat = 11e-5 + 4 * across, two = 2e-5 + 6 * 3e-6 + across + n / 10e9;
  EXPECT_NEAR(seconds(comm::Levels::flat, "all_gather", n), flat, 1e-9);
  EXPECT_NEAR(seconds(comm::Levels::two, "all_gather", n), two, 1e-9);
  EXPECT_NEAR(seconds(comm::Levels::two, "all_reduce", n), 2 * two, 1e-9);
  EXPECT_NEAR(seconds(comm::Levels::two, "all_to_all", n), flat, 1e-9);
  EXPECT_LT(two, flat);
  EXPECT_NEAR(seconds(comm::Levels::automatic, "all_gather", n), two, 1e-9);
  EXPECT_DOUBLE_EQ(seconds_of({"all_gather", n}, {1, 4, comm::Levels::two}, m),
                   seconds_of({"all_gather", n}, {1, 4}, m))
      << "a node has one level";
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
