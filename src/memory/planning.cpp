#include "tessera/memory/planning.hpp"

#include "tessera/memory/work_trace.hpp"

namespace tessera::memory {
namespace {

thread_local int arena_scopes = 0, buffer_scopes = 0;

}  // namespace

ArenaPlanning::ArenaPlanning() { ++arena_scopes; }
ArenaPlanning::~ArenaPlanning() { --arena_scopes; }
bool ArenaPlanning::active() { return arena_scopes > 0; }

BufferPlanning::BufferPlanning() { ++buffer_scopes; }
BufferPlanning::~BufferPlanning() { --buffer_scopes; }
bool BufferPlanning::active() { return buffer_scopes > 0; }

/// On the host the compute queue is inline.
PlanningQueue::PlanningQueue(MemorySpace space) : PlanningQueue(space, "compute") {
  auto* const trace = WorkTrace::active();
  if (trace && space == MemorySpace::host) trace->run_inline(name_);
}
Event PlanningQueue::record() {
  auto* const trace = WorkTrace::active();
  return trace ? trace->record(name_) : Event();
}
void PlanningQueue::wait(Event const& event) {
  if (auto* const trace = WorkTrace::active()) trace->wait(name_, event);
}

}  // namespace tessera::memory
