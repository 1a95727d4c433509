#include "cuda/cuda_faults.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::memory::detail {
namespace {

TEST(Architectures, MachineCodeServesItsMajorNumberUpwards) {
  EXPECT_TRUE(kernels_run_on("80", 8, 0));
  EXPECT_TRUE(kernels_run_on("80", 8, 9));
  EXPECT_FALSE(kernels_run_on("86", 8, 0));
  EXPECT_FALSE(kernels_run_on("90", 8, 9));
}

TEST(Architectures, PtxOfTheNewestServesLaterDevices) {
  EXPECT_TRUE(kernels_run_on("80 90", 10, 0));
  EXPECT_TRUE(kernels_run_on("80", 9, 0));
  EXPECT_TRUE(kernels_run_on("75 90", 9, 0));
  EXPECT_FALSE(kernels_run_on("75 90", 8, 0)) << "only the newest has PTX";
  EXPECT_TRUE(kernels_run_on("80 90 100", 12, 0));
  EXPECT_FALSE(kernels_run_on("", 9, 0));
}

TEST(Architectures, ADeviceWithoutKernelsIsRefusedWithTheOptionToSet) {
  DeviceInfo device;
  device.ordinal = 1;
  device.name = "NVIDIA V100";
  device.major = 7;
  std::string message;
  try {
    require_architecture(device, "80 90");
  } catch (ConfigError const& error) {
    message = error.what();
  }
  EXPECT_THAT(
      message,
      ::testing::AllOf(::testing::HasSubstr("device 1 (NVIDIA V100) has compute capability 7.0"),
                       ::testing::HasSubstr("architectures 80 90"),
                       ::testing::HasSubstr("-DTESSERA_CUDA_ARCHITECTURES=70")));
}

}  // namespace
}  // namespace tessera::memory::detail
