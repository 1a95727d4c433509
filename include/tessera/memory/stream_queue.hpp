#pragma once
/// Queues that are streams of the device.

#include <memory>
#include <string>

#include "tessera/memory/queue.hpp"

namespace tessera::memory {

enum class StreamPriority { normal, high };

/// Whether Queue::run_as_graph() captures CUDA graphs. A graph removes the gaps between short
/// kernels; capturing costs the host about what launching them does, a kept graph costs less.
enum class GraphMode { off, capture };

/// A stream of the device of this process (RuntimeOptions::device). wait() on an event of a host
/// queue blocks the caller; on an event of another stream it does not (cudaStreamWaitEvent).
std::unique_ptr<Queue> make_stream_queue(std::string name,
                                         StreamPriority priority = StreamPriority::normal,
                                         GraphMode graph_mode = GraphMode::off);

}  // namespace tessera::memory
