/// Which transport a group of processes gets: decided for each group by where its ranks are.
#include "host/process_transport.hpp"

#include <gtest/gtest.h>

#include "mpi_test.hpp"

namespace tessera::comm::detail {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<Transport> world(NodeTransport transport = NodeTransport::automatic) {
  auto const& session = test::session();
  return make_process_transport(std::make_unique<MpiComm>(session.world()), session, 60s,
                                transport);
}
Operation split_number(std::uint64_t sequence) {
  return Operation{.kind = Kind::split, .sequence = sequence};
}
std::string expected(int ranks, int nodes) {
  return ranks == 1 ? "loopback" : nodes == 1 ? "shared memory" : "mpi";
}

TEST(ProcessTransport, IsSharedMemoryWhenAllRanksAreOnOneNode) {
  auto const& info = test::session().info();
  auto const transport = world();
  EXPECT_EQ(transport->name(), expected(info.world_size, info.node_count));
  EXPECT_EQ(transport->rank(), info.rank);
  EXPECT_EQ(transport->size(), info.world_size);
}

/// A rank on another node does not turn shared memory off for the others.
TEST(ProcessTransport, TheRanksOfANodeShareMemoryAlsoInAJobOfSeveralNodes) {
  auto const& session = test::session();
  auto const& info = session.info();
  auto const transport = world();
  auto const node =
      transport->split(split_number(1), topology::node_group(session.nodes(), info.rank));
  EXPECT_EQ(node->name(), expected(info.local_size, 1));
  EXPECT_EQ(node->rank(), info.local_rank);
  EXPECT_EQ(node->size(), info.local_size);
  auto const rail =
      transport->split(split_number(2), topology::rail_group(session.nodes(), info.rank));
  EXPECT_EQ(rail->name(), expected(rail->size(), rail->size()));
  EXPECT_EQ(transport->split(split_number(3), {-1, 0, 0, "none"}), nullptr);
}

TEST(ProcessTransport, GroupsKeepTheChoiceOfMpi) {
  auto const transport = world(NodeTransport::mpi_only);
  auto const& info = test::session().info();
  auto const group = transport->split(split_number(1), {0, -info.rank, 0, "reversed"});
  EXPECT_EQ(group->name(), expected(info.world_size, 2));
  EXPECT_EQ(group->rank(), info.world_size - 1 - info.rank);
}

}  // namespace
}  // namespace tessera::comm::detail
