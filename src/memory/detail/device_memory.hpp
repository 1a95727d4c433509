#pragma once
/// Allocates and frees device memory and pinned host memory without waiting for the device.
///
/// Device memory comes from a stream-ordered pool with a stream of its own (cudaMallocAsync):
/// memory freed on that stream may be reused immediately by later work on it. Events extend this
/// order to all other streams:
///   free      the pool's stream waits for all work enqueued so far on every open stream, then
///   frees allocate  the memory is zeroed on the pool's stream; every open stream, and each stream
///   opened
///             later, waits for that
/// Both only enqueue work. The host waits only after a failed allocation, before it retries once.
///
/// Freed pinned memory is cached by size class, with an event after all work enqueued so far, and
/// is reused when the event has happened: pinning is slow, and unpinning waits for the device.

#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "detail/device_api.hpp"

namespace tessera::memory::detail {

class DeviceMemory {
 public:
  /// Limit of the cache of pinned memory.
  static constexpr std::size_t max_cached_bytes = std::size_t{256} << 20;

  explicit DeviceMemory(DeviceApi& api) : api_(api) {}
  ~DeviceMemory();
  DeviceMemory(DeviceMemory const&) = delete;

  DeviceApi& api() const { return api_; }
  /// Returns free and total memory within the bound of limit_memory().
  DeviceApi::MemoryInfo info() const;

  /// Zeroed for all later work on streams. Null when there is not enough.
  void* allocate(std::size_t bytes);
  /// Gives memory that was freed before back to the device, also what streams are about to leave.
  void trim();
  /// Work enqueued so far may still use it.
  void free(void* data) noexcept;

  /// Cached memory of the size class, else null. Not zeroed.
  void* reuse_pinned(std::size_t bytes);
  /// New memory; frees the cache and retries when the allocation fails. Null when there is not
  /// enough.
  void* allocate_pinned(std::size_t bytes);
  void free_pinned(void* data, std::size_t bytes) noexcept;

  /// True when all work enqueued so far on every stream completes within @p time. False immediately
  /// during a graph capture: its work is not enqueued yet.
  bool wait_for_streams(std::chrono::milliseconds time);

  /// Registers a stream before its first work on device memory, and removes it after its last.
  void open(DeviceApi::Stream stream);
  void close(DeviceApi::Stream stream) noexcept;

  /// Scope of a graph capture on @p stream, in which no events may be recorded. Memory freed
  /// during the capture is freed at the end of the scope, after the graph was launched. Memory
  /// allocated during it is zeroed when allocate() returns.
  class CaptureScope {
   public:
    CaptureScope(DeviceMemory& memory, DeviceApi::Stream stream);
    ~CaptureScope();
    CaptureScope(CaptureScope const&) = delete;

   private:
    DeviceMemory& memory_;
    DeviceApi::Stream stream_;
  };

 private:
  struct CachedPinned {
    void* data;
    std::size_t bytes;
    DeviceApi::Event unused;  ///< happens when no stream uses the memory any more
  };
  DeviceApi::Stream pool_stream();
  void wait_for_open_streams();
  void order_after_pool(DeviceApi::Stream stream);
  bool synchronize_pool(std::chrono::milliseconds timeout);
  void shrink_cache(std::size_t max_bytes);
  void unpin(void* data, std::size_t bytes) noexcept;

  DeviceApi& api_;
  std::mutex mutex_;
  DeviceApi::Stream pool_ = nullptr;  ///< made by the first allocation
  DeviceApi::Event event_ = nullptr;  ///< recorded again for every wait
  std::vector<DeviceApi::Stream> open_;
  std::vector<DeviceApi::Stream> capturing_;
  std::vector<void*> freed_in_capture_;
  std::vector<std::pair<void*, std::size_t>> pinned_freed_in_capture_;
  std::deque<CachedPinned> cache_;  ///< oldest first
  std::size_t cached_bytes_ = 0;
};

/// Returns the memory of the current runtime's device. @throws ConfigError when this build has none
DeviceMemory& device_memory();
/// Destroys it. Called before another runtime replaces the current one.
void reset_device_memory();

}  // namespace tessera::memory::detail
