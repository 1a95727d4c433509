#pragma once
/// The calls of a device runtime that this layer makes: CUDA's are in cuda_api.cpp, the tests have
/// a fake one on host memory.

#include <cstddef>
#include <string>

#include "tessera/memory/device.hpp"

namespace tessera::memory::detail {

class DeviceApi {
 public:
  using Stream = void*;
  using Event = void*;
  struct Room {
    std::size_t free = 0, total = 0;
  };
  virtual ~DeviceApi() = default;

  virtual DeviceSearch find() = 0;
  virtual DeviceInfo describe(int ordinal) = 0;
  /// From now on everything is made on this device, whichever thread asks.
  virtual void use(int ordinal) = 0;

  /// Device memory for what comes later on @p stream. Null when there is not enough.
  virtual void* allocate(std::size_t bytes, Stream stream) = 0;
  /// When @p stream comes to it; what is allocated later on the same stream may get it at once.
  virtual void free(void* data, Stream stream) noexcept = 0;
  /// Gives the device back what has been freed and is kept for later allocations.
  virtual void trim() = 0;
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(void* data) noexcept = 0;
  /// Free: what the device has left, and what is kept for later allocations.
  virtual Room room() = 0;
  virtual bool on_device(void const* data) = 0;

  virtual Stream make_stream(StreamPriority priority) = 0;
  virtual void drop_stream(Stream stream) noexcept = 0;
  virtual Event make_event() = 0;
  virtual void drop_event(Event event) noexcept = 0;
  virtual void record(Event event, Stream stream) = 0;
  virtual void wait(Stream stream, Event event) = 0;
  virtual bool happened(Event event) = 0;

  virtual void copy(Stream stream, void* to, void const* from, std::size_t bytes) = 0;
  virtual void zero(Stream stream, void* data, std::size_t bytes) = 0;
  /// function(argument) on a host thread when the stream comes to it; it must not call the device.
  virtual void call_host(Stream stream, void (*function)(void*), void* argument) = 0;

  /// An executable graph of a stream's work.
  using Graph = void*;
  /// What the stream is given from now on is collected, not run.
  virtual void begin_capture(Stream stream) = 0;
  /// Runs what was collected as @p graph, which is brought up to date, or made when it is null or
  /// has another form.
  virtual void launch_captured(Stream stream, Graph& graph) = 0;
  /// Forgets what was collected.
  virtual void abandon_capture(Stream stream) noexcept = 0;
  virtual void drop_graph(Graph graph) noexcept = 0;
};

/// @throws ConfigError when this build has no device runtime
DeviceApi& device_api();
/// Null when this build has none.
DeviceApi* device_api_or_null();
/// For tests: replaces the runtime, returns the former one. Null: the build's own.
DeviceApi* replace_device_api(DeviceApi* api);

}  // namespace tessera::memory::detail
