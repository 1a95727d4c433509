#include "tessera/memory/arena_planning.hpp"

#include <gtest/gtest.h>

#include "tessera/memory/buffer.hpp"

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

}  // namespace
}  // namespace tessera::memory
