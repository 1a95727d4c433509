#include "detail/link_measure.hpp"

#include <gtest/gtest.h>

#include "mpi_test.hpp"
#include "tessera/comm/host_collectives.hpp"

namespace tessera::comm::detail {
namespace {

TEST(MeasureLinks, GivesPlausibleFiguresThatAreTheSameOnAllRanks) {
  auto const& session = test::session();
  auto const world = make_mpi(session, std::chrono::seconds(60));
  auto const node = world->split(topology::node_group(session.nodes(), world->rank()));
  auto const leaders = world->split({node->rank() == 0 ? 0 : -1, 0, 0, "node leaders"});
  auto const links = measure_links(*world, *node, leaders.get());
  for (auto const& level : {links.node, links.network}) {
    EXPECT_GT(level.latency_seconds, 0.0);
    EXPECT_LT(level.latency_seconds, 5.0);
    EXPECT_GT(level.bytes_per_second, 1e5);
    EXPECT_LT(level.bytes_per_second, 1e16);
  }
  for (double const figure : {links.node.latency_seconds, links.node.bytes_per_second,
                              links.network.latency_seconds, links.network.bytes_per_second})
    EXPECT_EQ(all_reduce_value(*world, figure, ReduceOp::max), figure);
}

}  // namespace
}  // namespace tessera::comm::detail
