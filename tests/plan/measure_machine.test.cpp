#include "tessera/plan/measure_machine.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "mpi_test.hpp"
#include "scratch_files.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

namespace tessera::plan {
namespace {

TEST(MeasureMachine, GivesARateForEverythingThatAHostDoes) {
  auto const comm = comm::make_mpi(tessera::test::session(), std::chrono::seconds(60));
  auto const compute = memory::make_inline_queue("compute");
  ScratchFiles const files;
  int const ranks = comm->size();
  auto const profile = measure_machine({*compute, *comm, {1, ranks}, files.directory(), "here"});
  EXPECT_TRUE(profile.measured);
  EXPECT_FALSE(profile.has_device);
  EXPECT_EQ(profile.name, "here");
  EXPECT_EQ(profile.products.size(), 12u) << "two dtypes";
  for (auto const& p : profile.products) {
    EXPECT_GT(p.flops, 1e6);
    EXPECT_LT(p.flops, 1e16);
    EXPECT_EQ(comm::all_reduce_value(*comm, p.flops, comm::ReduceOp::min), p.flops)
        << "the slowest rank counts";
  }
  EXPECT_GT(profile.pass_efficiency, 0.0);
  EXPECT_LE(profile.pass_efficiency, 1.0);
  for (double const rate : {profile.memory_bandwidth, profile.host_memory_bandwidth,
                            profile.drive_write, profile.drive_read, profile.save_bandwidth})
    EXPECT_GT(rate, 1e5);
  EXPECT_EQ(profile.intra_node.bandwidth > 0.0, ranks > 1);
  EXPECT_GE(profile.collective_share, 0.0);
  EXPECT_LE(profile.collective_share, ranks > 1 ? 1.0 : 0.0);
  EXPECT_EQ(profile.inter_node, Link()) << "one node";
  EXPECT_GT(profile.host_memory, 0);
  EXPECT_TRUE(std::filesystem::is_empty(files.directory()));
  EXPECT_EQ(read_profile(to_json(profile), "again"), profile);
}

}  // namespace
}  // namespace tessera::plan
