#include "groups_suite.hpp"

namespace tessera::comm::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Host, Groups,
                         ::testing::Combine(::testing::Values(Implementation::loopback,
                                                              Implementation::automatic,
                                                              Implementation::mpi_only),
                                            ::testing::Values(Dtype::fp32, Dtype::bf16)),
                         [](auto const& info) {
                           return name_of(std::get<0>(info.param)) + "_" +
                                  std::string(tessera::name_of(std::get<1>(info.param)));
                         });
INSTANTIATE_TEST_SUITE_P(Around, Groups,
                         ::testing::Combine(::testing::Values(Implementation::recording,
                                                              Implementation::staged,
                                                              Implementation::single_rank),
                                            ::testing::Values(Dtype::bf16)),
                         [](auto const& info) { return name_of(std::get<0>(info.param)); });

/// The ranks of a group see the rank in the job of the one that is missing, and the group's name.
TEST(GroupErrors, NameTheRankInTheJobAndTheGroup) {
  auto const world = make(Implementation::automatic);
  int const ranks = world->size(), rank = world->rank();
  if (ranks < 3 || tessera::test::session().info().node_count > 1)
    GTEST_SKIP() << "needs three ranks that share memory";
  auto group = world->split({rank == 0 ? -1 : 0, rank, 0, "rail 1"});
  if (rank + 1 == ranks) group.reset();  // takes part no longer
  if (rank > 0 && rank + 1 < ranks) {
    try {
      group->barrier();
      ADD_FAILURE() << "a rank has left";
    } catch (PeerLostError const& error) {
      std::string const message = error.what();
      EXPECT_EQ(error.rank, ranks - 1);
      EXPECT_NE(message.find(concat("rank ", ranks - 1, " (host")), std::string::npos) << message;
      EXPECT_NE(message.find("barrier number 1 of rail 1"), std::string::npos) << message;
    }
  }
  group.reset();
  EXPECT_TRUE(agree(*world, true));
}

/// What is recorded of a group is in the list of the object that was split.
TEST(GroupRecords, CountByGroup) {
  auto const world = make_recording(make_mpi(tessera::test::session(), 60s));
  int const ranks = world->size(), rank = world->rank();
  auto const group = world->split({rank % 2, rank, 0, "rail"});
  auto const peers = static_cast<std::size_t>(group->size() - 1);
  Array data(*group, Placement::ordinary, Dtype::bf16, 12 * group->size());
  Array out(*group, Placement::ordinary, Dtype::bf16, 12 * group->size());
  group->wait(group->all_to_all(data.view(), out.view(), {}));
  EXPECT_EQ(world->bytes_sent("rail"), peers * 24);
  EXPECT_EQ(world->bytes_sent(), peers * 24) << "the split itself is not counted";
  Parts one;
  one.counts.assign(static_cast<std::size_t>(ranks), 5);
  one.offsets.assign(static_cast<std::size_t>(ranks), 0);
  Parts into = one;
  for (int q = 0; q < ranks; ++q) into.offsets[static_cast<std::size_t>(q)] = 5 * q;
  Array wide(*world, Placement::ordinary, Dtype::fp32, 5 * ranks),
      from(*world, Placement::ordinary, Dtype::fp32, 5);
  world->wait(world->all_to_all(from.view(), one, wide.view(), into, {}));
  EXPECT_EQ(world->bytes_sent(""), static_cast<std::size_t>(ranks - 1) * 20);
  EXPECT_EQ(world->records().back().group, "");
  if (ranks == 1) return;
  world->clear();
  if (rank == 0) world->wait(world->send(from.view(), ranks - 1, {}));
  if (rank == ranks - 1) world->wait(world->receive(from.view(), 0, {}));
  EXPECT_EQ(world->bytes_sent(), rank == 0 ? 20u : 0u);
}

}  // namespace
}  // namespace tessera::comm::test
