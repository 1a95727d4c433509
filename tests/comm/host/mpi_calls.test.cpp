#include "host/mpi_comm.hpp"

#include <gtest/gtest.h>

#include "host/loopback_transport.hpp"
#include "mpi_test.hpp"
#include "tessera/core/error.hpp"

namespace tessera::comm::detail {
namespace {

using namespace std::chrono_literals;

class MpiCallsTest : public ::testing::Test {
 protected:
  MpiComm comm_{test::session().world()};
  GroupMembers members_ = exchange_members(comm_, test::session());
  std::unique_ptr<Transport> transport_ = make_loopback_transport();
  MpiCalls calls_{comm_, members_.peers, *transport_, 300ms};
  int peer_ = 1 - comm_.rank();
};

TEST_F(MpiCallsTest, KnowsTheMembersOfEachNode) {
  ASSERT_EQ(members_.by_node.size(), 1u);
  EXPECT_EQ(members_.by_node[0], (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(members_.peers.world_rank(1), 1);
}

/// Messages of no elements are sent as well, so that a send and its receive always meet.
TEST_F(MpiCallsTest, SendsMeetTheirReceives) {
  for (std::int64_t const n : {0, 1, 100'000}) {
    std::vector<std::int32_t> data(static_cast<std::size_t>(n), 5 + comm_.rank());
    Operation const o{.kind = Kind::send, .dtype = Dtype::int32, .root = peer_, .numel = n};
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    if (comm_.rank() == 0)
      calls_.send(o, bytes);
    else
      calls_.receive(o, bytes);
    for (auto const value : data) ASSERT_EQ(value, 5);
  }
}

TEST_F(MpiCallsTest, RefusesPartsThatMpiCannotCount) {
  Operation const o{.kind = Kind::all_to_all_v, .dtype = Dtype::uint8};
  Parts const huge{{0, 1}, {0, std::int64_t{1} << 31}}, none{{0, 0}, {0, 0}};
  EXPECT_THROW(calls_.all_to_all(o, nullptr, huge, nullptr, none), InternalError);
  EXPECT_THROW(calls_.all_to_all(o, nullptr, none, nullptr, huge), InternalError);
}

}  // namespace
}  // namespace tessera::comm::detail
