#include "tessera/topology/gpu_inventory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::topology {
namespace {

TEST(DeviceLocality, AnUnknownDeviceHasNoCores) {
  EXPECT_THAT(cores_near({"ffff:ff:1f.7"}), testing::ElementsAre(testing::IsEmpty()));
}

TEST(DeviceLocality, NetworkDevicesHaveAPathFromEachGpu) {
  std::vector<Gpu> gpus(2);
  gpus[0].bus = "ffff:ff:1f.6";
  gpus[1].bus = "ffff:ff:1f.7";
  for (auto const& network : read_network_devices(gpus))
    EXPECT_THAT(network.from_gpu, testing::ElementsAre(GpuPath::unknown, GpuPath::unknown))
        << network.name;
}

}  // namespace
}  // namespace tessera::topology
