#pragma once
/// The GPU of this process as the layers above see it. A build without CUDA has the same functions
/// and finds no device.

#include <cstddef>
#include <memory>
#include <string>

#include "tessera/memory/buffer.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::memory {

bool built_with_cuda();
/// CUDA runtime of this build, 13000 for 13.0; 0 without.
int cuda_runtime_version();

struct DeviceSearch {
  int count = 0;
  std::string reason;  ///< why there is none: "this build has no CUDA", what the driver said
};
/// The devices that this process may use (after CUDA_VISIBLE_DEVICES). Never throws.
DeviceSearch find_devices();

struct DeviceInfo {
  int ordinal = -1;
  std::string name;             ///< "NVIDIA H200"
  int major = 0, minor = 0;     ///< compute capability
  int driver = 0, runtime = 0;  ///< CUDA versions, 13000 for 13.0
  std::string bus;              ///< PCI address, the same for every process that sees this device
  std::string uuid;             ///< 32 hexadecimal digits; that of the instance under MIG
  std::size_t total_bytes = 0, free_bytes = 0;
};
DeviceInfo describe_device(int ordinal);

enum class StreamPriority { normal, high };
/// What a stream makes of Queue::run_as_graph(): nothing, or CUDA graphs, which spare the device
/// the gaps between short kernels and cost the host about what launching does.
enum class GraphMode { off, capture };

/// A queue on the device of this process (RuntimeOptions::device). Host work added by submit() must
/// not call the device. wait() on an event of a host lane blocks the caller; on another stream's it
/// does not.
std::unique_ptr<Queue> make_stream_queue(std::string name,
                                         StreamPriority priority = StreamPriority::normal,
                                         GraphMode graph_mode = GraphMode::off);

/// Copies between any two places in the queue's order. On a stream both must stay as they are until
/// the queue has come past; pageable host memory is read before the call returns.
void copy(Queue& q, void* to, void const* from, std::size_t bytes);
void zero(Queue& q, void* data, std::size_t bytes);

/// Blocks the host until every stream has come past what it has been given so far, at most for @p
/// time; true when they have. For memory that is not this layer's, before it is freed; not for
/// steps.
bool wait_for_streams(std::chrono::milliseconds time) noexcept;

/// Whether the address lies in device memory.
bool on_device(void const* data);

/// Whether work on this queue's stream is CUDA's. A device runtime made of host memory (tests) has
/// streams too: kernels there are host tasks in the stream's order.
bool on_cuda(Queue const& q);

/// Where kernels on this queue find their operands.
inline MemorySpace memory_space_of(Queue const& q) {
  return q.kind() == QueueKind::stream ? MemorySpace::device : MemorySpace::host;
}

}  // namespace tessera::memory
