#include "selftest/gpu_test.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

GpuFigures figures() {
  return {.host = "n1",
          .model = "H200",
          .bus = "0000:18:00.0",
          .memory = 4e12,
          .products = 7e14,
          .to_device = 5e10,
          .from_device = 5.1e10,
          .tested_bytes = std::int64_t{16} << 30};
}

GpuReport report_of(std::size_t gpus) {
  GpuReport out;
  out.gpus.assign(gpus, figures());
  for (int a = 0; a < static_cast<int>(gpus); ++a)
    for (int b = a + 1; b < static_cast<int>(gpus); ++b)
      out.links.push_back({.from = a, .to = b, .bandwidth = 4e11});
  return out;
}

TEST(GpuTestReport, EqualDevicesHaveNoFault) { EXPECT_THAT(gpu_faults(report_of(4)), IsEmpty()); }

TEST(GpuTestReport, NamesTheSlowDevice) {
  auto report = report_of(4);
  report.gpus[2].products = 0.7 * 7e14;
  report.gpus[1].products = 0.9 * 7e14;  // within the spread of one model
  EXPECT_THAT(gpu_faults(report),
              ElementsAre("rank 2 (n1 H200 0000:18:00.0): bf16 products at 0.70 of the median of "
                          "4 GPUs"));
}

TEST(GpuTestReport, ComparesDevicesOfOneModel) {
  auto report = report_of(4);
  for (std::size_t i : {0u, 1u}) {
    report.gpus[i].model = "A100";
    report.gpus[i].memory = report.gpus[i].products = 1e12;
  }
  EXPECT_THAT(gpu_faults(report), IsEmpty());
}

TEST(GpuTestReport, NamesTheSlowLink) {
  auto report = report_of(4);
  report.links[4].bandwidth = 1e11;
  report.links.push_back({.from = 0, .to = 1, .in_node = false, .bandwidth = 2e10});
  EXPECT_THAT(gpu_faults(report),
              ElementsAre(HasSubstr("100.0 GB/s, 0.25 of the median of 6 links inside nodes")));
}

TEST(GpuTestReport, NamesWrongResultsAlsoOfSimulatedDevices) {
  auto report = report_of(2);
  report.compares_speeds = false;
  report.gpus[0].products = 1.0;
  report.gpus[1].wrong_bytes = 1;
  report.gpus[1].wrong_products = 3;
  report.links[0].wrong_bytes = 2;
  EXPECT_THAT(gpu_faults(report),
              ElementsAre(HasSubstr("rank 1 (n1 H200 0000:18:00.0): 1 byte of 16.0 GiB"),
                          HasSubstr("3 elements of a matrix product wrong"),
                          HasSubstr("2 bytes of a message came back changed")));
}

TEST(GpuTestReport, ShowsDevicesLinksAndOperationsOfAllRanks) {
  auto report = report_of(2);
  report.message_bytes = 1 << 26;
  report.all_gather = 4.5e11;
  report.reduce_scatter = 4.4e11;
  auto const table = gpu_table(report);
  EXPECT_THAT(table, HasSubstr("    1 n1               H200"));
  EXPECT_THAT(table, HasSubstr(" 4000.0    700.00       50.0     51.0  16.0 GiB\n"));
  EXPECT_THAT(table, HasSubstr("1 link inside nodes: 400.0 / 400.0 / 400.0 GB/s"));
  EXPECT_THAT(table, HasSubstr("all ranks, 64.0 MiB: all-gather 450.0 GB/s, reduce-scatter 440.0"));
}

}  // namespace
}  // namespace tessera::cli
