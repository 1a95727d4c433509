#include "tessera/topology/device_binding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DeviceBinding, OneOfItsOwnOrByLocalRank) {
  EXPECT_EQ(bind_device({3, 4}, 1), (DeviceBinding{0, ""}));
  EXPECT_EQ(bind_device({3, 4}, 4), (DeviceBinding{3, ""}));
  EXPECT_EQ(bind_device({1, 2}, 8), (DeviceBinding{1, ""}));
  EXPECT_EQ(bind_device({0, 1}, 0).ordinal, -1);
}

/// Two sockets with two devices each, numbered across them.
TEST(DeviceBinding, ARankTakesTheFreeDeviceNearItsCores) {
  std::vector<int> const first{0, 1, 2, 3}, second{4, 5, 6, 7}, all{0, 1, 2, 3, 4, 5, 6, 7};
  auto const devices_of = [&](std::vector<std::vector<int>> const& ranks) {
    std::vector<int> out;
    for (int r = 0; r < static_cast<int>(ranks.size()); ++r)
      out.push_back(bind_device({r, static_cast<int>(ranks.size())}, 4,
                                {ranks, {second, first, second, first}})
                        .ordinal);
    return out;
  };
  EXPECT_THAT(devices_of({{0, 1}, {2, 3}, {4, 5}, {6, 7}}), ElementsAre(1, 3, 2, 0));
  EXPECT_THAT(devices_of({{4, 5}, {0, 1}}), ElementsAre(0, 1));
  EXPECT_THAT(devices_of({{0}, {1}, {2}}), ElementsAre(1, 3, 2)) << "more ranks than near devices";
  EXPECT_THAT(devices_of({all, all, all, all}), ElementsAre(0, 1, 2, 3)) << "not bound";
  EXPECT_EQ(bind_device({2, 3}, 4, {{{0}, {1}, {2}}, {{}, {}, {}, {}}}).ordinal, 2)
      << "the system does not tell";
}

TEST(DeviceBinding, SharesInTurnAndSaysSo) {
  auto const binding = bind_device({5, 6}, 4);
  EXPECT_EQ(binding.ordinal, 1);
  EXPECT_THAT(binding.warning, HasSubstr("6 ranks of a node share 4 GPUs"));
}

TEST(DeviceView, OrdinaryListsHaveNoFindings) {
  EXPECT_THAT(device_view_findings({}), IsEmpty());
  EXPECT_THAT(device_view_findings({{"CUDA_VISIBLE_DEVICES", "0,1,2,3"},
                                    {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                                    {"SLURM_STEP_GPUS", "0,1,2,3"}}),
              IsEmpty());
  EXPECT_THAT(device_view_findings({{"CUDA_VISIBLE_DEVICES", "GPU-5ebe, GPU-77aa"}}), IsEmpty());
  EXPECT_THAT(device_view_findings({{"CUDA_VISIBLE_DEVICES", "MIG-91c0"}}), IsEmpty());
}

TEST(DeviceView, BrokenListsAreNamed) {
  Environment environment{{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}};
  auto const finding = [&](char const* list) {
    environment["CUDA_VISIBLE_DEVICES"] = list;
    auto const found = device_view_findings(environment);
    return found.empty() ? std::string() : found.front();
  };
  EXPECT_THAT(finding(""), HasSubstr("hides all GPUs"));
  EXPECT_THAT(finding("0,-1,2"), HasSubstr("'-1' is not a device, and CUDA ignores the rest"));
  EXPECT_THAT(finding("1,1"), HasSubstr("lists device 1 twice"));
  EXPECT_THAT(finding("MIG-1,MIG-2"), HasSubstr("at most one MIG instance"));
}

TEST(DeviceView, SlurmGaveMoreThanIsSeen) {
  auto const found = device_view_findings({{"CUDA_VISIBLE_DEVICES", "2"},
                                           {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                                           {"SLURM_STEP_GPUS", "0,1,2,3"}});
  EXPECT_THAT(found,
              ElementsAre(HasSubstr(
                  "Slurm allocated 4 GPUs (SLURM_STEP_GPUS=0,1,2,3) and this process sees 1")));
}

TEST(DeviceView, TheOrderOfNumbers) {
  EXPECT_THAT(device_view_findings({{"CUDA_VISIBLE_DEVICES", "0"}}),
              ElementsAre(HasSubstr("CUDA_DEVICE_ORDER=PCI_BUS_ID")));
  EXPECT_THAT(device_view_findings({{"CUDA_DEVICE_ORDER", "BUS"}}),
              ElementsAre(HasSubstr("must be FASTEST_FIRST or PCI_BUS_ID")));
}

TEST(DeviceSharing, TwoRanksOnOneGpuAreNamed) {
  EXPECT_FALSE(device_sharing({{"a", "1", "u"}, {"b", "1", "u"}}).shared)
      << "the same address on two nodes";
  auto const sharing = device_sharing(
      {{"a", "0000:17:00.0", "u"}, {"a", "0000:3d:00.0", "v"}, {"a", "0000:17:00.0", "u"}});
  EXPECT_TRUE(sharing.shared);
  EXPECT_THAT(sharing.notice, HasSubstr("ranks 0 and 2 share one GPU (0000:17:00.0)"));
  EXPECT_THAT(sharing.notice, HasSubstr("--gpus-per-task=1"));
}

TEST(DeviceSharing, MigInstancesOfOneGpuGoThroughTheHostToo) {
  auto const sharing =
      device_sharing({{"a", "0000:17:00.0", "MIG-1"}, {"a", "0000:17:00.0", "MIG-2"}});
  EXPECT_TRUE(sharing.shared);
  EXPECT_THAT(sharing.notice, HasSubstr("ranks 0 and 1 use MIG instances of one GPU"));
}

TEST(NearCores, AreTakenWhenNobodyHasChosen) {
  std::vector<int> const all{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_THAT(cores_to_use(all, all, {4, 5, 6, 7}), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(cores_to_use({0, 1}, all, {4, 5, 6, 7}), ElementsAre(0, 1))
      << "the launcher has bound the rank";
  EXPECT_EQ(cores_to_use(all, all, {}), all);
}

}  // namespace
}  // namespace tessera::topology
