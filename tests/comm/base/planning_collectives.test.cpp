#include "tessera/comm/base/planning_collectives.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"
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
  auto const group = comm->split({3, 0, 8, "node 3"});
  EXPECT_EQ(group->size(), 8);
  EXPECT_EQ(comm->split({-1, 0, 0, "none"}), nullptr);
  EXPECT_THROW((void)comm->split({3, 0, 0, "node 3"}), InternalError) << "the size is not known";
  group->wait(group->all_to_all(view, view, {}));
  memory.reset();
  EXPECT_EQ(tracker.current_total(), before);
}

}  // namespace
}  // namespace tessera::comm
