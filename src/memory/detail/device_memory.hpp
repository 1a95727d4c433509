#pragma once
/// Memory of the device and pinned host memory, taken and given back without waiting for the
/// device.
///
/// Device memory comes from a pool that is ordered by one stream, the pool's own: what was freed
/// there may at once be given to what comes later there. Two rules carry that over to all other
/// streams:
///   free      the pool's stream waits for everything that every open stream has been given so far,
///   then frees; allocate  the block is zeroed on the pool's stream, and every open stream waits
///   for that, as does each that is opened later.
/// Both only add to streams; the host waits when a request fails, before it is tried once more.
///
/// Pinned blocks are kept by size when they are given back, with an event after everything given to
/// streams so far, and are used again when it has happened: pinning takes long, and unpinning waits
/// for the device.

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
  /// Of pinned memory that nobody uses, no more than this is kept.
  static constexpr std::size_t most_kept = std::size_t{256} << 20;

  explicit DeviceMemory(DeviceApi& api) : api_(api) {}
  ~DeviceMemory();
  DeviceMemory(DeviceMemory const&) = delete;

  DeviceApi& api() const { return api_; }

  /// Zeroed for all later work of streams; null when there is not enough.
  void* allocate(std::size_t bytes);
  /// Work that streams have been given so far may still use it.
  void free(void* data) noexcept;

  /// A kept block of the size, else null; its content is whatever was there.
  void* reuse_pinned(std::size_t bytes);
  /// A new block; kept ones are given up when the system refuses. Null when there is not enough.
  void* allocate_pinned(std::size_t bytes);
  void free_pinned(void* data, std::size_t bytes) noexcept;

  /// True when all streams have come past what they have been given so far, within @p time.
  bool wait_for_streams(std::chrono::milliseconds time);

  /// Every stream on which work may use device memory, from its first to its last work.
  void open(DeviceApi::Stream stream);
  void close(DeviceApi::Stream stream) noexcept;

  /// While it lives, @p stream collects a graph and takes no part in events. What is freed
  /// meanwhile is freed when the graph has been given to the stream; what is allocated has been
  /// zeroed when allocate() returns.
  class Graph {
   public:
    Graph(DeviceMemory& memory, DeviceApi::Stream stream);
    ~Graph();
    Graph(Graph const&) = delete;

   private:
    DeviceMemory& memory_;
    DeviceApi::Stream stream_;
  };

 private:
  struct Kept {
    void* data;
    std::size_t bytes;
    DeviceApi::Event unused;  ///< happens when no stream uses it any more
  };
  DeviceApi::Stream pool();
  void follow_all_streams();
  void order_after_pool(DeviceApi::Stream stream);
  bool pool_is_done();
  void drop_kept(std::size_t down_to);

  DeviceApi& api_;
  std::mutex mutex_;
  DeviceApi::Stream pool_ = nullptr;  ///< made with the first allocation
  DeviceApi::Event mark_ = nullptr;   ///< used for one wait after the other
  std::vector<DeviceApi::Stream> open_;
  std::vector<DeviceApi::Stream> collecting_;
  std::vector<void*> freed_meanwhile_;
  std::vector<std::pair<void*, std::size_t>> pinned_meanwhile_;
  std::deque<Kept> kept_;  ///< oldest first
  std::size_t kept_bytes_ = 0;
};

/// Of the current runtime. @throws ConfigError when this build has none
DeviceMemory& device_memory();
/// Frees the memory that is kept for reuse. Called before another runtime replaces the current one.
void reset_device_memory();

}  // namespace tessera::memory::detail
