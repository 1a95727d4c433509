#include "tessera/train/step_requests.hpp"

#include <gtest/gtest.h>

#include <csignal>

#include "mpi_test.hpp"
#include "tessera/comm/host_collectives.hpp"

namespace tessera::train {
namespace {

TEST(StepRequests, AllRanksActOnWhatAnyRankAsks) {
  auto const comm = comm::make_mpi(test::session(), std::chrono::seconds(60));
  int const last = comm->size() - 1;
  bool const root = comm->rank() == 0, is_last = comm->rank() == last;
  EXPECT_EQ(agree_on_requests(*comm, {}), StepRequests{});
  EXPECT_EQ(agree_on_requests(*comm, {.stop = is_last ? SIGTERM : 0, .lock_lost = root}),
            (StepRequests{.stop = SIGTERM, .lock_lost = true}));
  EXPECT_EQ(agree_on_requests(*comm, {.stop = root ? 1000 : SIGINT, .save = is_last}),
            (StepRequests{.stop = 1000, .save = true}));
  EXPECT_EQ(agree_on_requests(*comm, {.disk_busy = root}), (StepRequests{.disk_busy = true}));
}

}  // namespace
}  // namespace tessera::train
