#include "tessera/topology/cores.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

namespace tessera::topology {
namespace {

std::vector<int> cores(int first, int last) {
  std::vector<int> out(static_cast<std::size_t>(last - first + 1));
  std::iota(out.begin(), out.end(), first);
  return out;
}

/// Shares of all ranks with these masks.
std::vector<int> shares(std::vector<std::vector<int>> masks, double quota = 0.0, int wanted = 0) {
  CoreFacts facts;
  facts.masks = std::move(masks);
  facts.quota = quota;
  facts.quota_sharers = static_cast<int>(facts.masks.size());
  facts.wanted = wanted;
  std::vector<int> out;
  for (facts.rank = 0; facts.rank < static_cast<int>(facts.masks.size()); ++facts.rank)
    out.push_back(share_of_cores(facts));
  return out;
}

using Shares = std::vector<int>;

/// srun -c 8 binds each task to its own cores.
TEST(ShareOfCores, OwnCoresAreNotShared) {
  EXPECT_EQ(shares({cores(0, 7), cores(8, 15)}), (Shares{8, 8}));
}

/// srun without binding, or one cgroup for all tasks of the step.
TEST(ShareOfCores, CommonCoresAreDividedEqually) {
  EXPECT_EQ(shares({cores(0, 15), cores(0, 15), cores(0, 15), cores(0, 15)}), (Shares{4, 4, 4, 4}));
  EXPECT_EQ(shares({cores(0, 9), cores(0, 9), cores(0, 9)}), (Shares{3, 3, 3}));
  EXPECT_EQ(shares({cores(4, 6), cores(4, 6), cores(4, 6)}), (Shares{1, 1, 1}));
}

TEST(ShareOfCores, OverlappingCoresCountInPart) {
  EXPECT_EQ(shares({cores(0, 5), cores(4, 9)}), (Shares{5, 5}));
  EXPECT_EQ(shares({cores(0, 7), cores(0, 1)}),
            (Shares{7, 1}));  // a helper task on two of eight cores
}

TEST(ShareOfCores, ThereIsAlwaysOne) {
  EXPECT_EQ(shares({{0}, {0}, {0}}), (Shares{1, 1, 1}));
  EXPECT_EQ(shares({cores(0, 63)}, 0.5), (Shares{1}));
}

/// A container with --cpus=8 on a node of 64 cores: the mask shows all 64.
TEST(ShareOfCores, TheControlGroupsQuotaIsAnUpperLimit) {
  EXPECT_EQ(shares({cores(0, 63)}, 8.0), (Shares{8}));
  EXPECT_EQ(shares({cores(0, 63), cores(0, 63)}, 8.0), (Shares{4, 4}));
  EXPECT_EQ(shares({cores(0, 3), cores(4, 7)}, 64.0), (Shares{4, 4}));
}

TEST(ShareOfCores, TheUsersWordCounts) {
  EXPECT_EQ(shares({cores(0, 3), cores(0, 3)}, 1.0, 12), (Shares{12, 12}));
}

/// Whether ranks with these masks have their own cores.
bool own_cores(std::vector<std::vector<int>> masks, int wanted = 0, double quota = 0.0) {
  CoreFacts facts;
  facts.quota_sharers = static_cast<int>(masks.size());
  facts.masks = std::move(masks);
  facts.wanted = wanted;
  facts.quota = quota;
  return ranks_have_own_cores(facts);
}

TEST(RanksHaveOwnCores, WhenEachHasOneForEveryThread) {
  EXPECT_TRUE(own_cores({cores(0, 1), cores(0, 1)}));
  EXPECT_TRUE(own_cores({{0}, {1}}));
  EXPECT_TRUE(own_cores({cores(0, 2), cores(0, 2), cores(0, 2)}));
  EXPECT_TRUE(own_cores({cores(0, 7), cores(8, 15)}, 8));
  EXPECT_TRUE(own_cores({cores(0, 15), cores(0, 15)}, 8));
}

TEST(RanksHaveOwnCores, NotWhenRanksOrTheirThreadsAreMoreThanCores) {
  EXPECT_FALSE(own_cores({cores(0, 1), cores(0, 1), cores(0, 1)}));
  EXPECT_FALSE(own_cores({{0}, {0}}));
  EXPECT_FALSE(own_cores({cores(0, 1), cores(0, 1)}, 2)) << "two threads each on two cores";
  EXPECT_FALSE(own_cores({cores(0, 3), {5}, {5}})) << "two other ranks share one";
}

TEST(RanksHaveOwnCores, NotWhenTheQuotaIsLess) {
  EXPECT_FALSE(own_cores({cores(0, 3), cores(0, 3)}, 0, 1.0));
  EXPECT_TRUE(own_cores({cores(0, 3), cores(0, 3)}, 0, 2.0));
  EXPECT_FALSE(own_cores({cores(0, 7), cores(0, 7)}, 2, 3.0));
}

TEST(ProcessorModel, HasANameForAllKinds) {
  auto const model = [](std::string const& text) {
    std::istringstream cpuinfo(text);
    return processor_model(cpuinfo);
  };
  EXPECT_EQ(model("processor\t: 0\nmodel name\t: Intel(R) Xeon(R)\n"), "Intel(R) Xeon(R)");
  std::string const arm = "processor\t: 0\nFeatures\t: fp sve2\nCPU implementer\t: 0x41\n";
  EXPECT_EQ(model(arm + "CPU part\t: 0xd4f\n"), "Arm Neoverse V2");
  EXPECT_EQ(model(arm + "CPU part\t: 0xfff\n"), "Arm, implementer 0x41, part 0xfff");
  EXPECT_EQ(model("processor\t: 0\n"), "unknown");
}

}  // namespace
}  // namespace tessera::topology
