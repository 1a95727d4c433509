#pragma once
/// Counts how stream queues with GraphMode::capture launch work.

#include <cstdint>

namespace tessera::memory {

/// Calls of Queue::run_as_graph() by the way in which their work was launched.
struct GraphLaunches {
  std::int64_t replayed = 0;  ///< a kept graph again, without capture
  std::int64_t updated = 0;   ///< captured, and a kept graph updated
  std::int64_t captured = 0;  ///< captured and instantiated
  std::int64_t separate = 0;  ///< kernel by kernel: the first time of a shape

  std::int64_t total() const { return replayed + updated + captured + separate; }
  bool operator==(GraphLaunches const&) const = default;
};
GraphLaunches operator-(GraphLaunches const& now, GraphLaunches const& before);
/// Of this process since it began. From any thread.
GraphLaunches graph_launches_of_process();

}  // namespace tessera::memory
