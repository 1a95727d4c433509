#include "tessera/comm/compose/benchmark.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "mpi_test.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"

namespace tessera::comm {
namespace {

std::vector<BenchmarkRow> rows_of(BenchmarkOptions options) {
  auto const& session = test::session();
  auto const world = make_mpi(session, std::chrono::minutes(1));
  auto const compute = memory::make_inline_queue("compute");
  options.smallest = 1024;
  options.largest = 4096;
  options.repetitions = 2;
  return run_benchmark(session, *world, *compute, options);
}

TEST(Benchmark, TimesEveryOperationAndFindsNoWrongElement) {
  for (auto const dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
    auto const rows = rows_of({.dtype = dtype});
    EXPECT_EQ(rows.size(), 2 * benchmark_operations().size());
    for (auto const& row : rows) {
      EXPECT_EQ(row.wrong, 0) << row.operation;
      EXPECT_GT(row.median_seconds, 0.0) << row.operation;
      EXPECT_EQ(row.repetitions, 2);
      EXPECT_EQ(row.ranks, test::session().info().world_size);
      bool const sums = row.operation.find("reduce") != std::string::npos;
      EXPECT_EQ(row.mpi_median_seconds > 0.0, dtype == Dtype::fp32 || !sums) << row.operation;
    }
  }
}

TEST(Benchmark, GroupsWorkAtTheSameTime) {
  auto const& info = test::session().info();
  auto const rows =
      rows_of({.operations = {"all_gather", "all_reduce"}, .groups = {"node", "rail", "shard:1"}});
  ASSERT_EQ(rows.size(), 12u);
  for (auto const& row : rows) EXPECT_EQ(row.wrong, 0) << row.operation << " in " << row.group;
  auto const node = std::ranges::find(rows, "node 0", &BenchmarkRow::group);
  ASSERT_TRUE(info.node_count > 1 || info.rank != 0 || node != rows.end());
  EXPECT_EQ(rows.front().ranks, info.local_size);
  EXPECT_EQ(rows.back().ranks, 1);
}

TEST(Benchmark, RefusesNamesThatDoNotExist) {
  EXPECT_THROW(rows_of({.operations = {"all_together"}}), ConfigError);
  EXPECT_THROW(rows_of({.groups = {"island"}}), ConfigError);
  EXPECT_THROW(rows_of({.groups = {"shard:"}}), ConfigError);
  EXPECT_THROW(rows_of({.groups = {"shard:5"}}), ConfigError);
}

}  // namespace
}  // namespace tessera::comm
