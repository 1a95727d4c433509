#include "tessera/train/setup/device_choice.hpp"

#include <gtest/gtest.h>

#include "error_of.hpp"
#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

TEST(DeviceChoice, Fp8NeedsTensorCoresForIt) {
  memory::DeviceInfo device;
  device.name = "NVIDIA A100";
  auto const refusal = [&](int major, int minor) {
    device.major = major, device.minor = minor;
    return error_of<ConfigError>([&] { require_fp8(device, "rank 3 on node1"); });
  };
  for (auto const& [major, minor] : {std::pair{8, 9}, {9, 0}, {10, 0}, {12, 0}})
    EXPECT_EQ(refusal(major, minor), "");
  for (auto const& [major, minor] : {std::pair{7, 5}, {8, 6}}) EXPECT_NE(refusal(major, minor), "");
  EXPECT_EQ(refusal(8, 0),
            "--fp8 true: NVIDIA A100 of rank 3 on node1 has compute capability 8.0, and fp8 "
            "products need 8.9 or later (Ada, Hopper, Blackwell); leave fp8 out");
}

TEST(DeviceChoice, CopyEnginesNeedADriver) {
  memory::DeviceInfo device;
  auto const refusal = [&](int driver) {
    device.driver = driver;
    return error_of<ConfigError>([&] { require_copy_engines(device, "rank 3 on node1"); });
  };
  for (int const driver : {12050, 12080, 13000}) EXPECT_EQ(refusal(driver), "");
  EXPECT_EQ(refusal(12040),
            "--nccl_cta_policy zero: the driver of rank 3 on node1 is for runtime 12.4, and NCCL's "
            "collectives by copy engines need 12.5; leave the option out");
}

TEST(MultiprocessorsOfProducts, AreThoseThatCommunicationLeaves) {
  EXPECT_EQ(multiprocessors_of_products(16, 132, 8), 116);
  EXPECT_EQ(multiprocessors_of_products(131, 132, 2), 1);
}

TEST(MultiprocessorsOfProducts, AreAllWithoutABoundAndOnOneRank) {
  EXPECT_EQ(multiprocessors_of_products(0, 132, 8), 0);
  EXPECT_EQ(multiprocessors_of_products(16, 132, 1), 0);
}

TEST(MultiprocessorsOfProducts, NoneLeftIsRefused) {
  try {
    multiprocessors_of_products(132, 132, 2);
    FAIL() << "accepted";
  } catch (ConfigError const& error) {
    EXPECT_NE(std::string(error.what()).find("has 132 multiprocessors"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::train
