#include "detail/device_memory.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::memory::detail {
namespace {

/// How long a failed allocation waits for memory that streams will free.
constexpr std::chrono::seconds pool_timeout{10};
/// How long an allocation during a capture waits for the work that is enqueued.
constexpr std::chrono::seconds capture_timeout{600};
constexpr char const* cache_name = "cached pinned memory";

/// Polls until @p event has happened, at most for @p time.
bool wait_for_event(DeviceApi& api, DeviceApi::Event event, std::chrono::milliseconds time) {
  auto const end = std::chrono::steady_clock::now() + time;
  while (!api.happened(event)) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

/// Four sizes per power of two, multiples of the page size.
std::size_t size_class(std::size_t bytes) {
  std::size_t const step = std::max<std::size_t>(4096, std::bit_floor(bytes) / 4);
  return round_up(bytes, step);
}

}  // namespace

DeviceMemory::~DeviceMemory() {
  shrink_cache(0);
  if (event_) api_.destroy_event(event_);
  if (pool_) api_.release_stream(pool_);
}

DeviceApi::MemoryInfo DeviceMemory::info() const {
  auto out = api_.memory_info();
  if (auto const limit = memory_limit(MemorySpace::device); limit > 0)
    out = {std::min(out.free_bytes, left_of_limit(MemorySpace::device)),
           std::min(out.total_bytes, limit)};
  return out;
}

DeviceApi::Stream DeviceMemory::pool_stream() {
  if (!pool_) {
    pool_ = api_.make_stream(StreamPriority::normal);
    event_ = api_.make_event();
  }
  return pool_;
}

/// A wait refers to the last record of the event before it, so one event is enough ("CUDA Runtime
/// API", cudaStreamWaitEvent).
void DeviceMemory::wait_for_open_streams() {
  for (auto const stream : open_) {
    api_.record(event_, stream);
    api_.wait(pool_, event_);
  }
}

void DeviceMemory::order_after_pool(DeviceApi::Stream stream) {
  api_.record(event_, pool_);
  api_.wait(stream, event_);
}

/// Waits until the pool's stream has executed all work so far; false after the timeout.
bool DeviceMemory::synchronize_pool(std::chrono::milliseconds timeout) {
  api_.record(event_, pool_);
  return wait_for_event(api_, event_, timeout);
}

void DeviceMemory::trim() {
  std::lock_guard const lock(mutex_);
  if (!pool_) return;
  synchronize_pool(pool_timeout);
  api_.trim();
}

void* DeviceMemory::allocate(std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  void* data = api_.allocate(bytes, pool_stream());
  if (!data) {
    synchronize_pool(pool_timeout);
    api_.trim();
    data = api_.allocate(bytes, pool_);
  }
  if (!data) return nullptr;
  api_.zero(pool_, data, bytes);
  for (auto const stream : open_)
    if (std::find(capturing_.begin(), capturing_.end(), stream) == capturing_.end())
      order_after_pool(stream);
  TESSERA_VALIDATE(capturing_.empty() || synchronize_pool(capture_timeout), InternalError,
                   "memory allocated during a graph capture was not zeroed within ",
                   capture_timeout.count(), " s; train without --device_graphs");
  return data;
}

DeviceMemory::CaptureScope::CaptureScope(DeviceMemory& memory, DeviceApi::Stream stream)
    : memory_(memory), stream_(stream) {
  std::lock_guard const lock(memory_.mutex_);
  memory_.capturing_.push_back(stream);
}
DeviceMemory::CaptureScope::~CaptureScope() {
  std::unique_lock lock(memory_.mutex_);
  std::erase(memory_.capturing_, stream_);
  if (!memory_.capturing_.empty()) return;
  auto const device = std::exchange(memory_.freed_in_capture_, {});
  auto const pinned = std::exchange(memory_.pinned_freed_in_capture_, {});
  lock.unlock();
  for (void* const data : device) memory_.free(data);
  for (auto const& [data, bytes] : pinned) memory_.free_pinned(data, bytes);
}

void DeviceMemory::free(void* data) noexcept {
  std::lock_guard const lock(mutex_);
  if (!capturing_.empty()) return freed_in_capture_.push_back(data);
  try {
    wait_for_open_streams();
  } catch (...) {
    // The device has failed: its streams have stopped, and a wait for one of their events reports
    // the error.
  }
  api_.free(data, pool_);
}

bool DeviceMemory::wait_for_streams(std::chrono::milliseconds time) {
  DeviceApi::Event done_event = nullptr;
  {
    std::lock_guard const lock(mutex_);
    if (!capturing_.empty()) return false;
    done_event = api_.make_event();
    pool_stream();
    wait_for_open_streams();
    api_.record(done_event, pool_);
  }
  bool const done = wait_for_event(api_, done_event, time);
  api_.destroy_event(done_event);
  return done;
}

void DeviceMemory::open(DeviceApi::Stream stream) {
  std::lock_guard const lock(mutex_);
  if (pool_) order_after_pool(stream);
  open_.push_back(stream);
}

/// Its last work may be in flight: later frees are ordered after it.
void DeviceMemory::close(DeviceApi::Stream stream) noexcept {
  std::lock_guard const lock(mutex_);
  try {
    pool_stream();
    api_.record(event_, stream);
    api_.wait(pool_, event_);
  } catch (...) {
    // Releases report no error, as in free().
  }
  std::erase(open_, stream);
}

void* DeviceMemory::reuse_pinned(std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  for (auto cached = cache_.begin(); cached != cache_.end(); ++cached) {
    if (cached->bytes != size_class(bytes) || !api_.happened(cached->unused)) continue;
    void* const data = cached->data;
    api_.destroy_event(cached->unused);
    cached_bytes_ -= cached->bytes;
    MemoryTracker::of_process().remove(Purpose::workspace, cache_name, cached->bytes);
    cache_.erase(cached);
    return data;
  }
  return nullptr;
}

void* DeviceMemory::allocate_pinned(std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  void* data = api_.allocate_pinned(size_class(bytes));
  if (!data && !cache_.empty()) {
    shrink_cache(0);
    data = api_.allocate_pinned(size_class(bytes));
  }
  if (data) PinnedCounter::of_process().add(size_class(bytes));
  return data;
}

/// Returns pinned memory to the system.
void DeviceMemory::unpin(void* data, std::size_t bytes) noexcept {
  PinnedCounter::of_process().remove(bytes);
  api_.free_pinned(data);
}

void DeviceMemory::free_pinned(void* data, std::size_t bytes) noexcept {
  std::lock_guard const lock(mutex_);
  if (!capturing_.empty()) return pinned_freed_in_capture_.push_back({data, bytes});
  CachedPinned cached{data, size_class(bytes), nullptr};
  if (cached.bytes > max_cached_bytes) return unpin(data, cached.bytes);
  try {
    pool_stream();
    wait_for_open_streams();
    cached.unused = api_.make_event();
    api_.record(cached.unused, pool_);
    shrink_cache(max_cached_bytes - cached.bytes);
    cache_.push_back(cached);
    cached_bytes_ += cached.bytes;
    MemoryTracker::of_process().add(Purpose::workspace, cache_name, cached.bytes);
  } catch (...) {
    unpin(data, cached.bytes);  // the device has failed
  }
}

void DeviceMemory::shrink_cache(std::size_t max_bytes) {
  while (cached_bytes_ > max_bytes) {
    CachedPinned const cached = cache_.front();
    cache_.pop_front();
    cached_bytes_ -= cached.bytes;
    MemoryTracker::of_process().remove(Purpose::workspace, cache_name, cached.bytes);
    api_.destroy_event(cached.unused);
    unpin(cached.data, cached.bytes);
  }
}

namespace {

struct Current {
  std::mutex mutex;
  std::unique_ptr<DeviceMemory> memory;
};
Current& current() {
  static Current& it = *new Current;  // outlives every static owner of memory
  return it;
}

}  // namespace

DeviceMemory& device_memory() {
  auto& api = device_api();
  std::lock_guard const lock(current().mutex);
  if (!current().memory) current().memory = std::make_unique<DeviceMemory>(api);
  return *current().memory;
}

void reset_device_memory() {
  std::lock_guard const lock(current().mutex);
  current().memory.reset();
}

}  // namespace tessera::memory::detail
