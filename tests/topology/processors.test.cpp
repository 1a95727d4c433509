#include "tessera/topology/cores.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace tessera::topology {
namespace {

TEST(Processors, CountsFitTogether) {
  auto const counts = count_processors();
  ASSERT_TRUE(counts);
  EXPECT_GE(counts->sockets, 1);
  EXPECT_GE(counts->numa_domains, 1);
  EXPECT_GE(counts->cores, counts->sockets);
  EXPECT_GE(counts->hardware_threads, counts->cores);
  EXPECT_GE(counts->hardware_threads, ::sysconf(_SC_NPROCESSORS_ONLN));
}

/// A machine that hwloc describes instead of this one: two sockets with two NUMA nodes each, two
/// cores per node.
class SyntheticMachine : public testing::Test {
 protected:
  void SetUp() override { setenv("HWLOC_SYNTHETIC", "pack:2 node:2 core:2 pu:1", 1); }
  void TearDown() override { unsetenv("HWLOC_SYNTHETIC"); }
};

TEST_F(SyntheticMachine, NodesNearCoresAreThoseOfTheCores) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  ASSERT_EQ(count_processors()->numa_domains, 4);
  EXPECT_THAT(numa_nodes_near({0}), ElementsAre(0));
  EXPECT_THAT(numa_nodes_near({2, 3}), ElementsAre(1));
  EXPECT_THAT(numa_nodes_near({3, 4, 5}), ElementsAre(1, 2));
  EXPECT_THAT(numa_nodes_near({0, 2, 4, 6}), IsEmpty()) << "all nodes: there is no choice";
  EXPECT_THAT(numa_nodes_near({}), IsEmpty());
  EXPECT_THAT(numa_nodes_near({-1, 100}), IsEmpty());
}

TEST(NumaNodes, OfAllCoresOfThisMachineAreNoChoice) {
  std::vector<int> all(8192);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  EXPECT_THAT(numa_nodes_near(all), testing::IsEmpty());
}

}  // namespace
}  // namespace tessera::topology
