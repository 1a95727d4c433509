#pragma once
/// The GPU of this process, and a simulated one. A build without GPU support has the same functions
/// and finds no device.

#include <chrono>
#include <cstddef>
#include <string>

#include "tessera/memory/buffer.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/memory/stream_queue.hpp"

namespace tessera::memory {

bool built_with_gpu();
/// Version of the device runtime of this build, 13000 for 13.0; 0 without GPU support.
int device_runtime_version();

/// How many devices there are.
struct DeviceSearch {
  int count = 0;
  std::string
      reason;  ///< why there is none: "this build has no GPU support", or the driver's error
};
/// The devices that are visible to this process (CUDA_VISIBLE_DEVICES applied). Never throws.
DeviceSearch find_devices();

/// A device, as its runtime describes it.
struct DeviceInfo {
  int ordinal = -1;
  std::string name;             ///< "NVIDIA H200"
  int major = 0, minor = 0;     ///< compute capability
  int driver = 0, runtime = 0;  ///< versions of the runtime, 13000 for 13.0
  std::string bus;              ///< PCI address, the same for every process that sees this device
  std::string uuid;             ///< 32 hexadecimal digits; under MIG that of the instance
  std::size_t total_bytes = 0;
};
/// Opens no context on the device.
DeviceInfo describe_device(int ordinal);
/// Free bytes of the device of this process, with the unused ones of its memory pool.
std::size_t free_device_bytes();
/// Gives the unused bytes of the pool back to the device, before a library allocates for itself. No
/// effect without a device.
void trim_device_pool();

/// Enqueues a copy between host and device memory in any combination (cudaMemcpyAsync). On a stream
/// neither buffer may be written or freed until the queue has executed the copy; pageable host
/// memory is read before the call returns.
void copy(Queue& q, void* to, void const* from, std::size_t bytes);
void zero(Queue& q, void* data, std::size_t bytes);

/// Blocks the host until all work enqueued so far on every stream has completed, at most for
/// @p time; returns true when it has, false immediately during a graph capture. For memory of
/// other allocators, before it is freed; not for use inside a step.
bool wait_for_streams(std::chrono::milliseconds time) noexcept;

/// Rows in memory; row i starts i * stride bytes after data.
struct StridedRows {
  void* data;
  std::size_t stride;
};
/// Rows in memory that are only read, see StridedRows.
struct ConstStridedRows {
  void const* data;
  std::size_t stride;
};
/// copy() of @p rows rows of @p bytes bytes each; with strides below 2 GiB as one operation on a
/// device (cudaMemcpy2DAsync).
void copy_rows(Queue& q, StridedRows to, ConstStridedRows from, std::size_t bytes,
               std::size_t rows);

/// @throws Error naming @p kernel when the device has refused its launch. Does not wait for the
/// kernel. Without it a refused launch would leave old values in the results.
void check_launch(Queue& q, char const* kernel);

/// A point in the work of a stream of the device with the time at which the device reaches it.
using StreamMark = void*;
StreamMark mark(Queue& q);
/// Seconds of the device's clock between two marks of a stream. Waits for @p end; takes both.
double seconds_between(StreamMark begin, StreamMark end);

/// True for an address in device memory.
bool on_device(void const* data);

/// True when the queue is a stream of a GPU. Simulated and fake devices have streams too: kernels
/// there are host functions in stream order.
bool on_gpu(Queue const& q);

/// Memory space of the operands of kernels on this queue.
inline MemorySpace memory_space_of(Queue const& q) {
  return q.kind() == QueueKind::stream ? MemorySpace::device : MemorySpace::host;
}

/// Opens no context on the device. 0 in a build without GPU support.
int multiprocessors_of_device(int ordinal);

/// A device made of host memory, for runs without a GPU: its memory is bounded, its streams are
/// host threads, and only copies move data between it and the host. Kernels run on the host's cores
/// in the order of their stream.
struct SimulatedDevice {
  std::size_t memory_bytes = 0;
  /// Bandwidth of copies in each direction; 0: as fast as memory
  double link_bytes_per_second = 0.0;
};

/// Makes it the device of this process until the process ends. Called before the Runtime is made.
void simulate_device(SimulatedDevice const& device);
/// Another speed of its link, for copies that start later.
void set_simulated_link(double bytes_per_second);
/// True after simulate_device().
bool device_is_simulated();

}  // namespace tessera::memory
