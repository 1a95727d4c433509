#pragma once
/// Planning: finding out how much memory a pass or an engine needs without allocating it.

#include <string>
#include <string_view>
#include <utility>

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

/// Bytes that an arena allocates for the chunk that holds @p peak bytes.
std::size_t arena_bytes(std::size_t peak);

/// Drops all work; a WorkTrace of this thread records its order. Kernels choose their workspaces by
/// the kind of the queue. While a BufferPlanning is active, make_stream_queue() and
/// make_worker_queue() return such queues.
class PlanningQueue final : public Queue {
 public:
  /// The compute queue of a pass that computes in @p space.
  explicit PlanningQueue(MemorySpace space);
  PlanningQueue(MemorySpace space, std::string name) : space_(space), name_(std::move(name)) {}
  QueueKind kind() const override {
    return space_ == MemorySpace::device ? QueueKind::stream : QueueKind::worker;
  }
  std::string_view name() const override { return name_; }
  void submit(std::function<void()> /*task*/) override {}
  Event record() override;
  void wait(Event const& event) override;

 private:
  MemorySpace space_;
  std::string name_;
};

}  // namespace tessera::memory
