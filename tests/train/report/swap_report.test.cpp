#include "tessera/train/report/used_paths.hpp"

#include <gmock/gmock.h>

#include "engine_settings.hpp"

namespace tessera::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

zero::EngineConfig config_on(char const* directory) {
  zero::EngineConfig config;
  config.partition = zero::partition_of(3);
  test::states_of(config).optimizer_swap.emplace().transfers.directories = {directory, "/second"};
  test::weights_of(config).weight_swap.emplace().transfers.directories = {"/weights"};
  return config;
}

zero::MemoryReport report(bool is_uring, bool is_direct) {
  zero::MemoryReport out;
  out.swapped = 3 << 20;
  out.swapped_weights = 1 << 20;
  out.swap = zero::SwapUse{{is_uring, is_uring ? "" : "Operation not permitted"}, is_direct};
  return out;
}

TEST(SwapReport, SaysWhatIsOnWhichDriveAndHowItGetsThere) {
  EXPECT_TRUE(swap_lines({}, {}).empty());
  EXPECT_THAT(swap_lines(config_on("/first"), report(true, true)),
              ElementsAre(HasSubstr("2.0 MiB of master weights and optimizer states in "
                                    "/first:/second, 4 tiles"),
                          HasSubstr("1.0 MiB of weights in /weights, 5 shards of units"),
                          HasSubstr("io_uring, O_DIRECT: 8 reads and as many writes")));
  EXPECT_THAT(swap_method_text(*report(false, false).swap),
              HasSubstr("threads with pread and pwrite (no io_uring: Operation not permitted), "
                        "through the page cache"));
}

TEST(SwapReport, WarnsOfDirectoriesInMemory) {
  EXPECT_THAT(swap_warnings(config_on("/dev/shm")), ElementsAre(HasSubstr("nvme_path /dev/shm")));
  EXPECT_TRUE(swap_warnings(config_on("/proc")).empty());
}

TEST(SwapReport, IsAFieldOfTheStatus) {
  auto const status = swap_status(config_on("/first"), report(false, true));
  EXPECT_EQ(status.at("method"), ConfigTree("threads"));
  EXPECT_EQ(status.at("why_not_io_uring"), ConfigTree("Operation not permitted"));
  EXPECT_EQ(status.at("optimizer_bytes_per_rank").as_int(), 2 << 20);
}

TEST(PrefetchReport, SaysHowFarAheadWeightsAreTransferredAndWhatWaits) {
  zero::PrefetchReport report{
      .units = 1, .max_units = 4, .transfer_seconds = 0.25, .compute_seconds = 2.0};
  EXPECT_EQ(prefetch_text(report),
            "weights are transferred 1 of up to 4 units ahead of the computation: in a pass the "
            "computation takes 2 s, transfers 0.25 s; 0.0 % of a pass waits for weights");
  report.max_read_units = report.read_units = 2;
  report.read_seconds = 1.5;
  report.waiting_seconds = 0.5;
  EXPECT_THAT(prefetch_text(report),
              AllOf(HasSubstr("ahead of the computation, and read 2 of up to 2 units ahead:"),
                    HasSubstr("transfers 0.25 s, reads 1.5 s; 20.0 % of a pass waits"),
                    HasSubstr("a larger offload_param.buffer_count may hide more of it")));
  report.read_seconds = 3.0;
  EXPECT_THAT(prefetch_text(report), HasSubstr("transfers take longer than the computation"));
  report.max_read_units = report.max_units = 1;
  EXPECT_THAT(prefetch_text(report), HasSubstr("transferred 1 unit ahead"));
}

TEST(PrefetchReport, IsAFieldOfTheStatus) {
  auto const status = prefetch_status({.units = 2, .max_units = 3, .read_seconds = 0.5});
  EXPECT_EQ(status.at("units_ahead").as_int(), 2);
  EXPECT_EQ(status.at("max_units_ahead").as_int(), 3);
  EXPECT_EQ(status.at("max_read_units_ahead").as_int(), 0);
  EXPECT_EQ(status.at("read_seconds"), ConfigTree(0.5));
}

}  // namespace
}  // namespace tessera::train
