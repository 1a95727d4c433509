#pragma once
/// The calls that this layer makes to a device runtime. cuda/cuda_api.cpp implements them by CUDA;
/// the tests have a fake device on host memory.

#include <cstddef>
#include <string>

#include "tessera/memory/device.hpp"

namespace tessera::memory::detail {

class DeviceApi {
 public:
  using Stream = void*;
  using Event = void*;
  struct MemoryInfo {
    std::size_t free_bytes = 0, total_bytes = 0;
  };
  virtual ~DeviceApi() = default;

  virtual DeviceSearch find() = 0;
  virtual DeviceInfo describe(int ordinal) = 0;
  /// Selects the device for all threads.
  virtual void use(int ordinal) = 0;

  /// Device memory, usable by later work on @p stream. Null when there is not enough.
  virtual void* allocate(std::size_t bytes, Stream stream) = 0;
  /// Freed in the order of @p stream; later allocations on the same stream may reuse it
  /// immediately.
  virtual void free(void* data, Stream stream) noexcept = 0;
  /// Releases the unused memory of the pool to the device.
  virtual void trim() = 0;
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(void* data) noexcept = 0;
  /// Free bytes include the unused memory of the pool.
  virtual MemoryInfo memory_info() = 0;
  virtual bool on_device(void const* data) = 0;

  virtual Stream make_stream(StreamPriority priority) = 0;
  /// The next make_stream() of the same priority may return it.
  virtual void release_stream(Stream stream) noexcept = 0;
  virtual Event make_event() = 0;
  virtual void destroy_event(Event event) noexcept = 0;
  virtual void record(Event event, Stream stream) = 0;
  virtual void wait(Stream stream, Event event) = 0;
  virtual bool happened(Event event) = 0;

  virtual void copy(Stream stream, void* to, void const* from, std::size_t bytes) = 0;
  /// One operation of the device where it has such; here a copy per row.
  virtual void copy_rows(Stream stream, StridedRows to, ConstStridedRows from, std::size_t bytes,
                         std::size_t rows) {
    for (std::size_t row = 0; row < rows; ++row)
      copy(stream, static_cast<std::byte*>(to.data) + row * to.stride,
           static_cast<std::byte const*>(from.data) + row * from.stride, bytes);
  }
  virtual void zero(Stream stream, void* data, std::size_t bytes) = 0;
  /// Calls function(argument) on a host thread in stream order; it must not call the device.
  virtual void call_host(Stream stream, void (*function)(void*), void* argument) = 0;

  /// Throws when the device has refused the last launch of a kernel, or earlier work has failed.
  virtual void check_launch(char const* kernel) { (void)kernel; }

  /// See memory::mark. Null while the stream captures a graph; without support null and 0.
  virtual StreamMark mark(Stream stream) { return (void)stream, nullptr; }
  virtual double seconds_between(StreamMark begin, StreamMark end) {
    return (void)begin, (void)end, 0.0;
  }

  /// An executable graph.
  using Graph = void*;
  /// Work enqueued on the stream from now on is captured, not executed.
  virtual void begin_capture(Stream stream) = 0;
  enum class Captured { updated, instantiated };
  /// Ends the capture and launches it as @p graph. The executable graph is updated, or instantiated
  /// when it is null or has another topology.
  virtual Captured launch_captured(Stream stream, Graph& graph) = 0;
  /// Launches an executable graph again.
  virtual void launch_graph(Stream stream, Graph graph) = 0;
  /// Ends the capture and discards it. @return whether it is known to have held no work
  virtual bool abandon_capture(Stream stream) noexcept = 0;
  virtual void destroy_graph(Graph graph) noexcept = 0;
};

/// @throws ConfigError when this build has no device runtime
DeviceApi& device_api();
/// Null when this build has none.
DeviceApi* device_api_or_null();
/// Replaces the runtime in tests and returns the previous one. Null: the runtime of the build.
DeviceApi* replace_device_api(DeviceApi* api);

/// The runtime of this build; null in builds without GPU support.
DeviceApi* gpu_api();
/// See device_runtime_version().
int gpu_api_version();
/// Multiprocessors of a device; 0 without GPU support.
int gpu_multiprocessors(int ordinal);

}  // namespace tessera::memory::detail
