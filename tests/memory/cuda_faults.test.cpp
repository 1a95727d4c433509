#include "cuda/cuda_faults.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tessera/core/error.hpp"

namespace tessera::memory::detail {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Thrown {
  int code = 0;
  std::string message;
};
Thrown thrown(int error, char const* name) {
  try {
    throw_fault(error, "cudaStreamWaitEvent(...)", name, "what the runtime says");
  } catch (Error const& error) {
    return {static_cast<int>(error.code()), error.what()};
  }
}

TEST(DeviceFaults, HardwareEndsTheRunAsALostNode) {
  auto const ecc = thrown(214, "cudaErrorECCUncorrectable");
  EXPECT_EQ(ecc.code, static_cast<int>(ExitCode::peer_lost));
  EXPECT_THAT(ecc.message, AllOf(HasSubstr("cudaErrorECCUncorrectable, 214"), HasSubstr("Xid 48"),
                                 HasSubstr("exclude the node")));
  EXPECT_THAT(thrown(220, "cudaErrorNvlinkUncorrectable").message,
              HasSubstr("NVLink error (Xid 74)"));
  EXPECT_TRUE(fault_of(226).hardware && fault_of(999).hardware);
}

TEST(DeviceFaults, DriversAndArchitecturesAreTheConfigurations) {
  EXPECT_EQ(thrown(35, "cudaErrorInsufficientDriver").code, static_cast<int>(ExitCode::bad_config));
  EXPECT_THAT(thrown(209, "cudaErrorNoKernelImageForDevice").message,
              HasSubstr("TESSERA_CUDA_ARCHITECTURES"));
}

TEST(DeviceFaults, WhatKernelsDoIsInternal) {
  auto const access = thrown(700, "cudaErrorIllegalAddress");
  EXPECT_EQ(access.code, static_cast<int>(ExitCode::internal));
  EXPECT_THAT(access.message, HasSubstr("compute-sanitizer"));
  EXPECT_THAT(thrown(1, "cudaErrorInvalidValue").message,
              HasSubstr("an earlier kernel of this process"));
}

}  // namespace
}  // namespace tessera::memory::detail
