#include "doctor/gpu_findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using topology::Gpu, topology::GpuInventory, topology::GpuPath;

/// Driver for CUDA 12.2; the last of three GPUs is damaged and has MIG instances.
GpuInventory damaged_node() {
  GpuInventory inventory;
  inventory.driver = "535.104.05";
  inventory.runtime = 12020;
  inventory.gpus.resize(3);
  Gpu& last = inventory.gpus[2];
  last.bus = "00000000:12:00.0";
  last.ecc_errors = 5;
  last.remap_pending = last.mig = true;
  return inventory;
}

TEST(GpuFindings, WithoutADriverThereIsOneReason) {
  GpuInventory inventory;
  inventory.refusal = "no NVIDIA driver on this node (no such file)";
  EXPECT_THAT(gpu_findings(inventory, {13000, ""}), ElementsAre(inventory.refusal));
}

TEST(GpuFindings, NameDamageAndOldDrivers) {
  auto const findings = gpu_findings(damaged_node(), {13000, ""});
  EXPECT_THAT(
      findings,
      ElementsAre(
          AllOf(HasSubstr("driver 535.104.05 is for CUDA 12.2, older than this build's CUDA 13.0"),
                HasSubstr("compute on the CPU")),
          AllOf(HasSubstr("GPU 2"), HasSubstr("5 uncorrected ECC errors")),
          HasSubstr("memory row remapping is pending"), HasSubstr("MIG instances")));
  EXPECT_EQ(gpu_findings(damaged_node(), {12040, ""}).size(), 3u) << "the same major version";
}

TEST(GpuFindings, LinksWithoutAPath) {
  GpuInventory inventory;
  inventory.gpus.resize(2);
  for (auto& gpu : inventory.gpus) gpu.nvlinks = 18;
  inventory.paths = {{GpuPath::same, GpuPath::numa_node}, {GpuPath::numa_node, GpuPath::same}};
  EXPECT_THAT(gpu_findings(inventory, {}),
              ElementsAre(HasSubstr("GPUs 0 and 1 have NVLinks but no NVLink path: NODE")));
}

TEST(NcclFindings, SayWhatASettingCosts) {
  EXPECT_THAT(nccl_findings({{"PATH", "/bin"}}), IsEmpty());
  EXPECT_THAT(
      nccl_findings({{"NCCL_IB_DISABLE", "1"},
                     {"NCCL_P2P_DISABLE", "1"},
                     {"NCCL_SHM_DISABLE", "1"},
                     {"NCCL_SOCKET_IFNAME", "ib0"}}),
      ElementsAre(
          HasSubstr("NCCL_IB_DISABLE=1: InfiniBand and RoCE are off"),
          HasSubstr("NCCL_P2P_DISABLE=1: direct GPU-to-GPU transfers (NVLink, PCIe) are off"),
          HasSubstr("NCCL_SHM_DISABLE=1: shared memory is off"), "NCCL_SOCKET_IFNAME=ib0"));
  EXPECT_THAT(
      nccl_findings({{"NCCL_LAUNCH_ORDER_IMPLICIT", "0"}, {"NCCL_LOCAL_REGISTER", "0"}}),
      ElementsAre(HasSubstr("NCCL_LAUNCH_ORDER_IMPLICIT=0: all collectives share one communicator"),
                  HasSubstr("NCCL_LOCAL_REGISTER=0: buffers are not registered")));
  EXPECT_THAT(nccl_findings({{"NCCL_IB_DISABLE", "0"}}), ElementsAre("NCCL_IB_DISABLE=0"));
}

TEST(XidFindings, AreNamedOnce) {
  EXPECT_THAT(xid_findings("[1] usb 1-1: new device\n"), IsEmpty());
  EXPECT_THAT(xid_findings(
                  "[12.5] NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', GPU has fallen off the "
                  "bus.\n[12.6] NVRM: Xid (PCI:0000:17:00): 79, pid=1\n[13.0] NVRM: Xid "
                  "(PCI:0000:3d:00): 31, pid=7, name=x\n[14] NVRM: Xid (PCI:0000:3d:00): 999, x\n"),
              ElementsAre(HasSubstr("GPU 0000:17:00: Xid 79, the GPU has fallen off the bus"),
                          HasSubstr("GPU 0000:3d:00: Xid 31, memory page fault"),
                          "GPU 0000:3d:00: Xid 999"));
}

}  // namespace
}  // namespace tessera::cli
