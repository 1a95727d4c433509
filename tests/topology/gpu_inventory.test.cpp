#include "tessera/topology/gpu_inventory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace tessera::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GpuInventory, ReadsWhatTheLibrarySays) {
  auto const inventory = read_gpu_inventory(TESSERA_FAKE_NVML);
  ASSERT_EQ(inventory.refusal, "");
  EXPECT_EQ(inventory.driver, "535.104.05");
  EXPECT_EQ(inventory.runtime, 12020);
  ASSERT_EQ(inventory.gpus.size(), 3u);
  EXPECT_EQ(inventory.gpus[1].name, "Fake H100");
  EXPECT_EQ(inventory.gpus[1].uuid, "GPU-0001");
  EXPECT_EQ(inventory.gpus[1].bus, "00000000:11:00.0");
  EXPECT_EQ(inventory.gpus[1].nvlinks, 12);
  EXPECT_EQ(inventory.gpus[1].total_bytes, 80ull << 30);
  EXPECT_EQ(inventory.gpus[1].used_bytes, 2ull << 30);
  EXPECT_TRUE(inventory.gpus[2].mig && inventory.gpus[2].remap_pending &&
              !inventory.gpus[2].remap_failed);
  using enum GpuPath;
  EXPECT_THAT(inventory.paths,
              ElementsAre(ElementsAre(same, nvlink, system), ElementsAre(nvlink, same, system),
                          ElementsAre(system, system, same)));
}

TEST(GpuInventory, SaysWhyThereIsNone) {
  EXPECT_THAT(read_gpu_inventory("libtessera-no-nvml.so").refusal,
              HasSubstr("no NVIDIA driver on this node"));
  EXPECT_THAT(read_gpu_inventory("libc.so.6").refusal, HasSubstr("is not an NVML library"));
  ::setenv("TESSERA_FAKE_NVML_BROKEN", "1", 1);
  auto const inventory = read_gpu_inventory(TESSERA_FAKE_NVML);
  ::unsetenv("TESSERA_FAKE_NVML_BROKEN");
  EXPECT_EQ(inventory.refusal, "NVML initialization failed: Driver Not Loaded (error 9)");
}

}  // namespace
}  // namespace tessera::topology
