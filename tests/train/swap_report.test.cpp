#include "tessera/train/swap_report.hpp"

#include <gmock/gmock.h>

namespace tessera::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

zero::EngineConfig config_on(char const* directory) {
  zero::EngineConfig config;
  config.optimizer_swap.emplace().transfers.directories = {directory, "/second"};
  config.weight_swap.emplace().transfers.directories = {"/weights"};
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

}  // namespace
}  // namespace tessera::train
