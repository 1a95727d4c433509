#include "compose/link_measure.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "mpi_test.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"

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

TEST(LinksFromText, AreLatencyAndBandwidthOfEachLevel) {
  auto const links = links_from_text("5,40,2.5,12");
  EXPECT_DOUBLE_EQ(links.node.latency_seconds, 5e-6);
  EXPECT_DOUBLE_EQ(links.node.bytes_per_second, 40e9);
  EXPECT_DOUBLE_EQ(links.network.latency_seconds, 2.5e-6);
  EXPECT_DOUBLE_EQ(links.network.bytes_per_second, 12e9);
  for (char const* text : {"", "5,40,3", "5,40,3,0", "5,-1,3,12", "-5,40,3,12", "5,40,3,12GB",
                           "5;40;3;12", "5,40,1e9,12", "5,40,3,inf"})
    EXPECT_THROW((void)links_from_text(text), ConfigError) << text;
}

/// The given figures decide, on every rank those of rank 0.
TEST(LinksOfJob, AreThoseOfTheVariable) {
  auto const& session = test::session();
  auto const world = make_mpi(session, std::chrono::seconds(60));
  auto const node = world->split(topology::node_group(session.nodes(), world->rank()));
  auto const leaders = world->split({node->rank() == 0 ? 0 : -1, 0, 0, "node leaders"});
  setenv("TESSERA_LINKS", world->rank() == 0 ? "5,40,3,12" : "1,1,1,1", 1);
  auto const links = links_of_job(*world, *node, leaders.get());
  EXPECT_DOUBLE_EQ(links.node.bytes_per_second, 40e9);
  EXPECT_DOUBLE_EQ(links.network.latency_seconds, 3e-6);
  setenv("TESSERA_LINKS", "5,40", 1);
  EXPECT_THROW((void)links_of_job(*world, *node, leaders.get()), ConfigError);
  unsetenv("TESSERA_LINKS");
}

}  // namespace
}  // namespace tessera::comm::detail
