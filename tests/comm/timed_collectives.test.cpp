#include "tessera/comm/timed_collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm_test.hpp"

namespace tessera::comm::test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::unique_ptr<Collectives> mpi() { return make_mpi(tessera::test::session(), 60s); }

TEST(TimedCollectives, MeasuresEachOperationAndSize) {
  std::vector<std::string> lines;
  TimedCollectives comm(mpi(), {{}, [&](std::string const& line) { lines.push_back(line); }});
  std::int64_t const shard = 240 / comm.size();
  Array data{comm, Placement::ordinary, Dtype::bf16, 240};
  Array out{comm, Placement::ordinary, Dtype::fp32, shard};
  StridedShards const shards{shard, shard, 0};
  comm.wait(comm.all_reduce(data.view(), ReduceOp::sum, {}));
  comm.wait(comm.all_reduce(data.view(), ReduceOp::sum, {}));
  comm.wait(comm.reduce_scatter(data.view(), shards, out.view(), memory::WriteMode::overwrite, {}));
  comm.wait(comm.all_gather(data.view(), shards, {}));
  auto const entries = comm.entries();
  ASSERT_THAT(entries, SizeIs(3));
  EXPECT_EQ(entries[1].operation, "all_reduce");
  EXPECT_EQ(entries[1].bytes, 480u);
  EXPECT_THAT(entries[1].seconds, SizeIs(2));
  EXPECT_GE(entries[1].seconds[0], 0.0);
  EXPECT_EQ(entries[0].operation, "all_gather");
  EXPECT_EQ(entries[2].bytes, 480u);
  EXPECT_THAT(lines, SizeIs(4));
  EXPECT_THAT(lines[0], HasSubstr("comm op: all_reduce | time (ms): "));
  EXPECT_THAT(comm.table(), HasSubstr("all_reduce             480 B        2"));
}

TEST(TimedCollectives, MeasuresOnlyTheNamedOperations) {
  TimedCollectives comm(mpi(), {{"broadcast"}, {}});
  Array data{comm, Placement::ordinary, Dtype::fp32, 8};
  comm.wait(comm.all_reduce(data.view(), ReduceOp::sum, {}));
  comm.wait(comm.broadcast(data.view(), 0, {}));
  ASSERT_THAT(comm.entries(), SizeIs(1));
  EXPECT_EQ(comm.entries()[0].operation, "broadcast");
  EXPECT_EQ(all_reduce_value(comm, std::int64_t{1}, ReduceOp::sum), comm.size());
}

}  // namespace
}  // namespace tessera::comm::test
