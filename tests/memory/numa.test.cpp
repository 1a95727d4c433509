/// The memory policy of buffers, as the kernel reports it. One node is enough.
#include "tessera/memory/buffer.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "detail/numa_policy.hpp"
#include "fake_device.hpp"

namespace tessera::memory {
namespace {

constexpr unsigned long max_nodes = 1024, words = max_nodes / 64;

struct Policy {
  int mode = -1;
  unsigned long nodes[words] = {};
  bool prefers_first_node() const { return (mode == 1 || mode == 5) && nodes[0] == 1; }
};

/// Returns the policy of the page at @p address, or with null that of the calling thread.
Policy policy_of(void const* address) {
  Policy out;
  constexpr unsigned long of_address = 2;
  EXPECT_EQ(syscall(SYS_get_mempolicy, &out.mode, out.nodes, max_nodes, address,
                    address ? of_address : 0UL),
            0);
  return out;
}

class Numa : public testing::Test {
 protected:
  void SetUp() override {
    if (!use_numa_nodes({0})) GTEST_SKIP() << "the system refuses memory policies";
  }
  void TearDown() override { use_numa_nodes({}); }
};

TEST_F(Numa, BuffersOfEachSizePreferTheNodes) {
  EXPECT_EQ(numa_nodes(), std::vector<int>{0});
  for (std::size_t const bytes : {std::size_t{100}, std::size_t{5} << 20}) {
    Buffer const buffer("test.numa", Purpose::workspace, bytes);
    auto const* const data = static_cast<std::byte const*>(buffer.data());
    EXPECT_TRUE(policy_of(data).prefers_first_node()) << bytes;
    EXPECT_TRUE(policy_of(data + bytes - 1).prefers_first_node()) << bytes;
  }
}

TEST_F(Numa, WithoutNodesTheSystemDecides) {
  EXPECT_TRUE(use_numa_nodes({}));
  EXPECT_TRUE(numa_nodes().empty());
  Buffer const buffer("test.numa", Purpose::workspace, std::size_t{5} << 20);
  EXPECT_EQ(policy_of(buffer.data()).mode, 0);
  detail::NumaScope const scope;
  EXPECT_EQ(policy_of(nullptr).mode, 0);
}

TEST_F(Numa, AScopePlacesWhatADriverTouchesAndRestoresThePolicyOfTheThread) {
  EXPECT_EQ(policy_of(nullptr).mode, 0);
  {
    detail::NumaScope const scope;
    EXPECT_TRUE(policy_of(nullptr).prefers_first_node());
    std::thread([] {  // threads inherit the policy
      EXPECT_TRUE(policy_of(nullptr).prefers_first_node());
    })
        .join();
  }
  EXPECT_EQ(policy_of(nullptr).mode, 0);
  constexpr int bind = 2;
  unsigned long const first = 1;
  ASSERT_EQ(syscall(SYS_set_mempolicy, bind, &first, 64UL), 0);
  { detail::NumaScope const scope; }
  EXPECT_EQ(policy_of(nullptr).mode, bind);
  EXPECT_EQ(policy_of(nullptr).nodes[0], 1UL);
  ASSERT_EQ(syscall(SYS_set_mempolicy, 0, nullptr, 0UL), 0);
}

/// Records the policy under which a driver would pin.
struct PinningDevice : test::FakeDevice {
  void* allocate_pinned(std::size_t bytes) override {
    when_pinned = policy_of(nullptr);
    return test::FakeDevice::allocate_pinned(bytes);
  }
  Policy when_pinned;
};

TEST_F(Numa, PinnedMemoryIsAllocatedWithinAScope) {
  PinningDevice device;
  Buffer const buffer("test.pinned", Purpose::workspace, 8192, MemorySpace::pinned);
  EXPECT_TRUE(device.when_pinned.prefers_first_node());
  EXPECT_EQ(policy_of(nullptr).mode, 0);
}

TEST(NumaNodes, ThoseThatTheMachineLacksAreRefused) {
  EXPECT_FALSE(use_numa_nodes({-1}));
  EXPECT_FALSE(use_numa_nodes({5000}));
  EXPECT_FALSE(use_numa_nodes({1000}));
  EXPECT_TRUE(numa_nodes().empty());
}

}  // namespace
}  // namespace tessera::memory
