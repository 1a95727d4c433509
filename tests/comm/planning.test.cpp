#include "tessera/comm/planning.hpp"

#include <gtest/gtest.h>

#include "tessera/memory/planning.hpp"

namespace tessera::comm {
namespace {

TEST(PlanningCollectives, CountMemoryAndMoveNothing) {
  auto& tracker = memory::MemoryTracker::of_process();
  std::size_t const before = tracker.current_total(), bytes = std::size_t{1} << 45;
  memory::BufferPlanning const planning;
  auto const comm = make_planning_collectives(1000, memory::MemorySpace::host);
  EXPECT_EQ(comm->size(), 1000);
  auto memory = comm->allocate("test", memory::Purpose::communication, bytes);
  EXPECT_EQ(tracker.current_total(), before + bytes);
  memory::TensorView const view(memory.get(), Dtype::fp32, {1 << 20});
  auto const pending = comm->all_reduce(view, ReduceOp::sum, {});  // nothing may access the memory
  EXPECT_TRUE(pending.event().done());
  comm->wait(pending);
  comm->barrier();
  EXPECT_TRUE(agree(*comm, true));
  EXPECT_FALSE(agree(*comm, false));
  EXPECT_EQ(broadcast_bytes(*comm, "text", 0), "text");
  memory.reset();
  EXPECT_EQ(tracker.current_total(), before);
}

}  // namespace
}  // namespace tessera::comm
