#include "tessera/memory/planning.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::memory {
namespace {

TEST(ArenaPlanning, CountsWithoutMemoryWhatARealArenaUses) {
  auto& tracker = MemoryTracker::of_process();
  auto const use = [](Arena& arena) {
    (void)arena.allocate(Dtype::bf16, {3});
    auto const mark = arena.mark();
    (void)arena.allocate(Dtype::fp32, {1000});
    arena.rollback(mark);
    (void)arena.allocate(Dtype::fp32, {500});
  };
  std::size_t const before = tracker.current_total();
  Arena real("test.real", Purpose::activations);
  use(real);
  std::size_t const with_real = tracker.current_total();
  {
    ArenaPlanning const planning;
    Arena planned("test.planned", Purpose::activations);
    use(planned);
    EXPECT_EQ(planned.peak(), 64u + 4032u);
    EXPECT_EQ(planned.peak(), real.peak());
    EXPECT_EQ(planned.capacity(), 0u);
    EXPECT_EQ(tracker.current_total(), with_real);
  }
  EXPECT_EQ(with_real - before, real.capacity());
  EXPECT_FALSE(ArenaPlanning::active());
}

TEST(BufferPlanning, CountsBuffersOfAnySizeWithoutMemory) {
  auto& host = MemoryTracker::of_process();
  auto& device = MemoryTracker::of_device();
  std::size_t const before = host.current_total(), more = std::size_t{1} << 50;
  {
    BufferPlanning const planning;
    Buffer const huge("test.huge", Purpose::weights, more);
    Buffer moved = Buffer("test.device", Purpose::weights, more, MemorySpace::device);
    EXPECT_NE(huge.data(), moved.data());
    EXPECT_EQ(host.current_total(), before + more);
    EXPECT_EQ(device.current_total(), more);
    Buffer small("test.small", Purpose::workspace, 4096, MemorySpace::device);
    static_cast<char*>(small.data())[4095] = 1;  // host code may use it
    EXPECT_EQ(device.current_total(), more + 4096);
    moved = Buffer();
  }
  EXPECT_EQ(host.current_total(), before);
  EXPECT_EQ(device.current_total(), 0u);
  EXPECT_FALSE(BufferPlanning::active());
  EXPECT_THROW(Buffer("test.real", Purpose::weights, more), OutOfMemoryError);
}

TEST(BufferPlanning, NoLimitRefusesABufferOfAnySize) {
  limit_memory(MemorySpace::host, MemoryTracker::of_process().current_total() + 1);
  {
    BufferPlanning const planning;
    EXPECT_NO_THROW(Buffer("small", Purpose::workspace, 4096));
    EXPECT_NO_THROW(Buffer("large", Purpose::workspace, std::size_t{1} << 40));
  }
  EXPECT_THROW(Buffer("real", Purpose::workspace, 4096), OutOfMemoryError);
  limit_memory(MemorySpace::host, 0);
}

TEST(PlanningQueue, DropsWorkAndHasTheKindOfItsMemory) {
  PlanningQueue host(MemorySpace::host), device(MemorySpace::device);
  bool called = false;
  host.submit([&] { called = true; });
  EXPECT_FALSE(called);
  EXPECT_TRUE(host.record().done());
  EXPECT_EQ(memory_space_of(host), MemorySpace::host);
  EXPECT_EQ(memory_space_of(device), MemorySpace::device);
  EXPECT_FALSE(on_gpu(device)) << "no kernel of CUDA is launched";
}

}  // namespace
}  // namespace tessera::memory
