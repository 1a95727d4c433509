#pragma once
/// Planning: finding out how much memory a pass or an engine needs without allocating it.

#include <string_view>

#include "tessera/memory/device.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::memory {

/// An arena that this thread makes during the scope has no memory: its views have addresses that
/// nothing may access, and Arena::peak() says how many bytes the same allocations need.
class ArenaPlanning {
 public:
  ArenaPlanning();
  ~ArenaPlanning();
  ArenaPlanning(ArenaPlanning const&) = delete;
  ArenaPlanning& operator=(ArenaPlanning const&) = delete;
  static bool active();
};

/// A buffer of at least a megabyte that this thread makes during the scope has no memory, in any
/// memory space, and no limit refuses it. The memory tracker counts it. Smaller buffers, which host
/// code reads and writes itself, have host memory.
class BufferPlanning {
 public:
  BufferPlanning();
  ~BufferPlanning();
  BufferPlanning(BufferPlanning const&) = delete;
  BufferPlanning& operator=(BufferPlanning const&) = delete;
  static bool active();
  static constexpr std::size_t smallest_without_memory = std::size_t{1} << 20;
};

/// Drops all work. Kernels choose their workspaces by the kind of the queue.
class PlanningQueue final : public Queue {
 public:
  explicit PlanningQueue(MemorySpace space) : space_(space) {}
  QueueKind kind() const override {
    return space_ == MemorySpace::device ? QueueKind::stream : QueueKind::worker;
  }
  std::string_view name() const override { return "planning"; }
  void submit(std::function<void()> /*task*/) override {}
  Event record() override { return {}; }
  void wait(Event const& /*event*/) override {}

 private:
  MemorySpace space_;
};

}  // namespace tessera::memory
