#include "bench_comm/comm_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using comm::BenchmarkRow;
using testing::HasSubstr;

CommSetting const setting{2, 1, "node1", "host memory", "auto", "Open MPI v4.1.4", "fp32"};

std::vector<BenchmarkRow> rows() {
  BenchmarkRow gather{.operation = "all_gather", .group = "world", .bytes = 1000000, .ranks = 2};
  gather.repetitions = 11;
  gather.median_seconds = gather.least_seconds = 1e-3;
  gather.mpi_median_seconds = 2e-3;
  auto reduce = gather;
  reduce.operation = "all_reduce";
  reduce.mpi_median_seconds = 0.0;
  return {gather, reduce};
}

TEST(CommReport, HasBandwidthsAndTheRatioToMpi) {
  auto const table = comm_table(setting, rows());
  EXPECT_THAT(table, HasSubstr("2 ranks on 1 node (node1), host memory, fp32"));
  EXPECT_THAT(table, testing::ContainsRegex("all_gather +976.6 KiB +11 +1000.0 +1000.0 +1.000 "
                                            "+0.500 +2000.0 +2.00 +0"));
  EXPECT_THAT(table, testing::ContainsRegex("all_reduce .* 1.000 +- +- +0")) << "not timed";
}

TEST(CommReport, JsonHasEachRow) {
  auto const json = comm_json(setting, rows());
  auto const& list = json.at("rows").as_array();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_DOUBLE_EQ(list[0].at("bus_bandwidth").as_double(), 0.5e9);
  EXPECT_DOUBLE_EQ(list[0].at("mpi_median_seconds").as_double(), 2e-3);
  EXPECT_EQ(list[1].find("mpi_median_seconds"), nullptr);
}

TEST(CommReport, PictureHasAPanelForEachOperation) {
  auto const svg = draw_comm(setting, rows());
  EXPECT_THAT(svg, HasSubstr(">all_gather</text>"));
  EXPECT_THAT(svg, HasSubstr(">all_reduce</text>"));
  auto const count = [&](std::string const& what) {
    int n = 0;
    for (auto at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("<polyline"), 3) << "two of Tessera's and one of MPI's";
  EXPECT_EQ(count("stroke-dasharray"), 1);
}

}  // namespace
}  // namespace tessera::cli
