/// Operations between simulated nodes take the time of a network, those inside a node do not.
#include "base/queued_collectives.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "comm_test.hpp"
#include "tessera/comm/compose/two_level.hpp"
#include "tessera/core/error.hpp"
#include "tessera/topology/rank_groups.hpp"

namespace tessera::comm::detail {
namespace {

using namespace tessera::comm::test;

TEST(SimulatedNetwork, TakesALatencyPerMessageAndTheBandwidthOfANode) {
  auto const network = SimulatedNetwork::from_text("20,2.5");
  EXPECT_DOUBLE_EQ(network.latency_seconds, 20e-6);
  EXPECT_DOUBLE_EQ(network.bytes_per_second, 2.5e9);
  EXPECT_EQ(network.delay(0, 0).count(), 0);
  EXPECT_NEAR(static_cast<double>(network.delay(3, 5'000'000).count()), 60e3 + 2e6, 2.0);
}

TEST(SimulatedNetwork, RefusesWhatIsNoNetwork) {
  for (char const* text : {"", "20", "20,", "20,0", "-1,1", "20,1GB", "1e9,1", "20;1", "1,inf"})
    EXPECT_THROW((void)SimulatedNetwork::from_text(text), ConfigError) << text;
}

/// An all-gather of 1,000 bytes per rank, flat and in two levels: one message for each rank of
/// other nodes, and one for each other node.
TEST(SimulatedNetwork, DelaysWhatLeavesTheNode) {
  auto const& session = tessera::test::session();
  auto const& nodes = session.nodes();
  setenv("TESSERA_SIMULATED_NETWORK", "20000,1000", 1);
  auto const seconds = [&](Collectives& comm) {
    std::vector<float> data(static_cast<std::size_t>(250 * comm.size()));
    memory::TensorView const view(data.data(), Dtype::fp32, {250 * comm.size()});
    auto const start = std::chrono::steady_clock::now();
    comm.wait(comm.all_gather(view, {250, 250, 0}, {}));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  auto flat = make_mpi(session, 60s);
  int others = 0;
  for (auto const node : nodes) others += node != session.info().node;
  EXPECT_GE(seconds(*flat), 0.020 * others);
  setenv("TESSERA_SIMULATED_NETWORK", "1000000,1000", 1);
  auto const own = flat->split(topology::node_group(nodes, session.info().rank));
  double inside = 0.0;
  for (int i = 0; i < 20; ++i) inside += seconds(*own);
  EXPECT_LT(inside, 10.0) << "20 messages that leave the node would take 20 s";
  setenv("TESSERA_SIMULATED_NETWORK", "20000,1000", 1);
  auto const two = make_two_level(std::move(flat), nodes, {Levels::two, {}});
  EXPECT_GE(seconds(*two), 0.020 * (session.info().node_count - 1));
  unsetenv("TESSERA_SIMULATED_NETWORK");
}

}  // namespace
}  // namespace tessera::comm::detail
