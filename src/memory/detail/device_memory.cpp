#include "detail/device_memory.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::memory::detail {
namespace {

/// How long a request that was refused waits for memory that streams have yet to give back.
constexpr std::chrono::seconds settling{10};
constexpr char const* kept_name = "pinned memory for reuse";

/// Looks until @p event has happened, at most for @p time.
bool happens(DeviceApi& api, DeviceApi::Event event, std::chrono::milliseconds time) {
  auto const end = std::chrono::steady_clock::now() + time;
  while (!api.happened(event)) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

/// Four sizes for each doubling, whole pages.
std::size_t size_class(std::size_t bytes) {
  std::size_t const step = std::max<std::size_t>(4096, std::bit_floor(bytes) / 4);
  return (bytes + step - 1) / step * step;
}

}  // namespace

DeviceMemory::~DeviceMemory() {
  drop_kept(0);
  if (mark_) api_.drop_event(mark_);
  if (pool_) api_.drop_stream(pool_);
}

DeviceApi::Stream DeviceMemory::pool() {
  if (!pool_) {
    pool_ = api_.make_stream(StreamPriority::normal);
    mark_ = api_.make_event();
  }
  return pool_;
}

/// A wait is for the event's last record before it, so that one event serves all ("CUDA Runtime
/// API", cudaStreamWaitEvent).
void DeviceMemory::follow_all_streams() {
  for (auto const stream : open_) {
    api_.record(mark_, stream);
    api_.wait(pool_, mark_);
  }
}

void DeviceMemory::order_after_pool(DeviceApi::Stream stream) {
  api_.record(mark_, pool_);
  api_.wait(stream, mark_);
}

/// Waits for what the pool's stream has been given; false when that takes too long.
bool DeviceMemory::pool_is_done() {
  api_.record(mark_, pool_);
  return happens(api_, mark_, settling);
}

void* DeviceMemory::allocate(std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  void* data = api_.allocate(bytes, pool());
  if (!data) {
    pool_is_done();
    api_.trim();
    data = api_.allocate(bytes, pool_);
  }
  if (!data) return nullptr;
  api_.zero(pool_, data, bytes);
  for (auto const stream : open_)
    if (std::find(collecting_.begin(), collecting_.end(), stream) == collecting_.end())
      order_after_pool(stream);
  TESSERA_VALIDATE(collecting_.empty() || pool_is_done(), InternalError,
                   "memory taken while a graph is collected was not zeroed within ",
                   settling.count(), " s; train without --cuda_graphs");
  return data;
}

DeviceMemory::Graph::Graph(DeviceMemory& memory, DeviceApi::Stream stream)
    : memory_(memory), stream_(stream) {
  std::lock_guard const lock(memory_.mutex_);
  memory_.collecting_.push_back(stream);
}
DeviceMemory::Graph::~Graph() {
  std::unique_lock lock(memory_.mutex_);
  std::erase(memory_.collecting_, stream_);
  if (!memory_.collecting_.empty()) return;
  auto const device = std::exchange(memory_.freed_meanwhile_, {});
  auto const pinned = std::exchange(memory_.pinned_meanwhile_, {});
  lock.unlock();
  for (void* const data : device) memory_.free(data);
  for (auto const& [data, bytes] : pinned) memory_.free_pinned(data, bytes);
}

void DeviceMemory::free(void* data) noexcept {
  std::lock_guard const lock(mutex_);
  if (!collecting_.empty()) return freed_meanwhile_.push_back(data);
  try {
    follow_all_streams();
  } catch (...) {
    // The device has failed: its streams are at an end, and the error reaches whoever asks for
    // their events.
  }
  api_.free(data, pool_);
}

bool DeviceMemory::wait_for_streams(std::chrono::milliseconds time) {
  auto const past = api_.make_event();
  {
    std::lock_guard const lock(mutex_);
    pool();
    follow_all_streams();
    api_.record(past, pool_);
  }
  bool const done = happens(api_, past, time);
  api_.drop_event(past);
  return done;
}

void DeviceMemory::open(DeviceApi::Stream stream) {
  std::lock_guard const lock(mutex_);
  if (pool_) order_after_pool(stream);
  open_.push_back(stream);
}

/// Its last work may still be under way: what is freed later is freed after that.
void DeviceMemory::close(DeviceApi::Stream stream) noexcept {
  std::lock_guard const lock(mutex_);
  try {
    pool();
    api_.record(mark_, stream);
    api_.wait(pool_, mark_);
  } catch (...) {
    // As in free().
  }
  std::erase(open_, stream);
}

void* DeviceMemory::reuse_pinned(std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  for (auto block = kept_.begin(); block != kept_.end(); ++block) {
    if (block->bytes != size_class(bytes) || !api_.happened(block->unused)) continue;
    void* const data = block->data;
    api_.drop_event(block->unused);
    kept_bytes_ -= block->bytes;
    MemoryTracker::of_process().remove(Purpose::workspace, kept_name, block->bytes);
    kept_.erase(block);
    return data;
  }
  return nullptr;
}

void* DeviceMemory::allocate_pinned(std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  void* const data = api_.allocate_pinned(size_class(bytes));
  if (data || kept_.empty()) return data;
  drop_kept(0);
  return api_.allocate_pinned(size_class(bytes));
}

void DeviceMemory::free_pinned(void* data, std::size_t bytes) noexcept {
  std::lock_guard const lock(mutex_);
  if (!collecting_.empty()) return pinned_meanwhile_.push_back({data, bytes});
  Kept block{data, size_class(bytes), nullptr};
  if (block.bytes > most_kept) return api_.free_pinned(data);
  try {
    pool();
    follow_all_streams();
    block.unused = api_.make_event();
    api_.record(block.unused, pool_);
    drop_kept(most_kept - block.bytes);
    kept_.push_back(block);
    kept_bytes_ += block.bytes;
    MemoryTracker::of_process().add(Purpose::workspace, kept_name, block.bytes);
  } catch (...) {
    api_.free_pinned(data);  // the device has failed
  }
}

void DeviceMemory::drop_kept(std::size_t down_to) {
  while (kept_bytes_ > down_to) {
    Kept const block = kept_.front();
    kept_.pop_front();
    kept_bytes_ -= block.bytes;
    MemoryTracker::of_process().remove(Purpose::workspace, kept_name, block.bytes);
    api_.drop_event(block.unused);
    api_.free_pinned(block.data);
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
