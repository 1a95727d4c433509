#include "tessera/comm/base/timed_collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "comm_test.hpp"
#include "tessera/core/error.hpp"

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

/// The last rank comes 100 ms late to every operation: the others wait for it.
TEST(TimedCollectives, NamesTheRankThatTheOthersWaitFor) {
  TimedCollectives comm(mpi(), {{}, {}});
  Array data{comm, Placement::ordinary, Dtype::fp32, 8};
  for (int i = 0; i < 5; ++i) {
    if (comm.rank() + 1 == comm.size()) std::this_thread::sleep_for(100ms);
    comm.wait(comm.all_reduce(data.view(), ReduceOp::sum, {}));
  }
  auto const stragglers = comm.stragglers();
  auto const table = stragglers.table();
  EXPECT_THAT(comm.entries(), SizeIs(1)) << "the table itself is not measured";
  EXPECT_THAT(table, HasSubstr("all_reduce              32 B        5"));
  EXPECT_THAT(table,
              HasSubstr(concat("rank ", comm.size() - 1, " came last to 5 of 5 operations")));
  auto const json = comm.json(stragglers);
  EXPECT_EQ(json.at("operations").as_array()[0].at("count").as_int(), 5);
  EXPECT_EQ(json.at("came_last").as_array().back().as_int(), 5);
  if (comm.size() > 1) {
    EXPECT_THAT(table, HasSubstr("rank 0 came last to 0 of 5"));
    EXPECT_GE(json.at("waiting").as_array()[0].at("waiting_seconds").as_double(), 5 * 0.1 / 2 / 2);
  }
}

/// Rank r sends r + 1 elements to rank 0.
TEST(TimedCollectives, LeavesOutAllToAllWhoseBytesDifferBetweenRanks) {
  TimedCollectives comm(mpi(), {{}, {}});
  auto const ranks = static_cast<std::size_t>(comm.size());
  Array data{comm, Placement::ordinary, Dtype::fp32, comm.size()};
  Array out{comm, Placement::ordinary, Dtype::fp32, comm.size() * (comm.size() + 1) / 2};
  Parts send{std::vector<std::int64_t>(ranks), std::vector<std::int64_t>(ranks)}, receive = send;
  send.counts[0] = comm.rank() + 1;
  if (comm.rank() == 0)
    for (std::int64_t r = 0; r < comm.size(); ++r)
      receive.counts[static_cast<std::size_t>(r)] = r + 1,
      receive.offsets[static_cast<std::size_t>(r)] = r * (r + 1) / 2;
  comm.wait(comm.all_to_all(data.view(), send, out.view(), receive, {}));
  comm.wait(comm.all_reduce(data.view(), ReduceOp::sum, {}));
  auto const stragglers = comm.stragglers();
  ASSERT_THAT(stragglers.rows, SizeIs(1));
  EXPECT_EQ(stragglers.rows[0].operation, "all_reduce");
  EXPECT_THAT(comm.table(), HasSubstr("all_to_all_v"));
}

TEST(TimedCollectives, CannotCompareRanksThatMeasuredDifferentCalls) {
  TimedCollectives comm(mpi(), {{}, {}});
  EXPECT_EQ(comm.stragglers().table(), "") << "nothing was measured";
  auto const group = comm.split({comm.rank(), 0, 1, "single"});
  Array data{*group, Placement::ordinary, Dtype::fp32, 8};
  group->wait(group->all_reduce(data.view(), ReduceOp::sum, {}));
  EXPECT_EQ(comm.stragglers().table(), "") << "only groups were measured";
  EXPECT_THAT(comm.table(), HasSubstr("all_reduce, single"));
}

}  // namespace
}  // namespace tessera::comm::test
