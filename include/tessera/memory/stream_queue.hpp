#pragma once
/// Queues that are streams of the device, and how those with GraphMode::capture launch work.

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/memory/queue.hpp"

namespace tessera::memory {

/// Priority of a device stream: kernels of high priority start first.
enum class StreamPriority { normal, high };

/// Whether Queue::run_as_graph() captures device graphs. A graph removes the gaps between short
/// kernels; capturing costs the host about what launching them does, a kept graph costs less.
enum class GraphMode { off, capture };

/// A stream of the device of this process (RuntimeOptions::device). wait() on an event of a host
/// queue blocks the caller; on an event of another stream it does not (cudaStreamWaitEvent).
std::unique_ptr<Queue> make_stream_queue(std::string name,
                                         StreamPriority priority = StreamPriority::normal,
                                         GraphMode graph_mode = GraphMode::off);

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
/// Counts the graph launches of this process since it began. Any thread may call it.
GraphLaunches graph_launches_of_process();

}  // namespace tessera::memory
