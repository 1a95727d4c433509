#include "tessera/train/step/link_probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "mpi_test.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

namespace tessera::train {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(LinkProbe, AnyRankOfANodeWouldDoAndTheLowestIsTaken) {
  EXPECT_THAT(lowest_rank_of_each({"b", "b", "a", "c", "a"}), ElementsAre(0, 2, 3));
  EXPECT_THAT(lowest_rank_of_each({}), IsEmpty());
}

TEST(LinkProbe, ANodeIsSlowWhereBothOfItsLinksAre) {
  for (std::size_t nodes = 3; nodes < 9; ++nodes)
    for (std::size_t slow = 0; slow < nodes; ++slow) {
      std::vector<double> seconds(nodes, 0.002);
      seconds[slow] = 0.05;
      EXPECT_THAT(slow_links(seconds), IsEmpty()) << "one slow link is that of two nodes";
      seconds[(slow + nodes - 1) % nodes] = 0.04;
      auto const found = slow_links(seconds);
      ASSERT_THAT(found, SizeIs(1)) << nodes << " nodes";
      EXPECT_EQ(found[0].place, slow);
      EXPECT_EQ(found[0].seconds, 0.04);
      EXPECT_EQ(found[0].others, 0.002);
    }
}

TEST(LinkProbe, SmallDifferencesAreNone) {
  EXPECT_THAT(slow_links({0.010, 0.019, 0.019, 0.010}), IsEmpty()) << "less than twice as long";
  EXPECT_THAT(slow_links({0.0001, 0.0009, 0.0009, 0.0001}), IsEmpty()) << "less than 1 ms";
  EXPECT_THAT(slow_links({0.01, 0.1}), IsEmpty()) << "two nodes have one link";
}

TEST(LinkProbe, EveryLinkOfARingIsMeasured) {
  auto const comm = comm::make_mpi(test::session(), std::chrono::seconds(60));
  if (comm->size() < 3) GTEST_SKIP() << "a ring has three ranks or more";
  std::vector<int> ring(static_cast<std::size_t>(comm->size()));
  std::iota(ring.begin(), ring.end(), 0);
  auto const seconds = ring_round_trips(*comm, ring);
  EXPECT_THAT(seconds, SizeIs(ring.size()));
  EXPECT_THAT(seconds, Each(Gt(0.0)));
  auto const lowest = comm::broadcast_bytes(*comm, std::to_string(seconds[0]), 0);
  EXPECT_EQ(lowest, std::to_string(seconds[0])) << "all ranks know the same times";
  ring.pop_back();  // the last rank is on a node with another one
  EXPECT_THAT(ring_round_trips(*comm, ring), SizeIs(ring.size()));
}

}  // namespace
}  // namespace tessera::train
