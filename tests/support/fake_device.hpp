#pragma once
/// A device runtime on host memory: every stream is a host thread, events are points of its lane, and what a program asks of the
/// device can be counted, limited and delayed. Kernels on its streams run as host tasks in the stream's order (memory::on_cuda is false).

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "detail/device_api.hpp"

namespace tessera::test {

class FakeDevice final : public memory::detail::DeviceApi {
 public:
  FakeDevice() : former_(memory::detail::replace_device_api(this)) {}
  ~FakeDevice() override { memory::detail::replace_device_api(former_); }

  std::size_t capacity = std::size_t{64} << 20;
  std::atomic<std::size_t> held{0}, pinned{0};
  /// What a step may not do: ask for memory, give it back (CUDA waits for the whole device then), make streams, copy from or to
  /// pageable memory (CUDA makes the caller wait).
  struct Costs {
    int allocations = 0, frees = 0, streams = 0, pageable_copies = 0;
    bool operator==(Costs const&) const = default;
    friend std::ostream& operator<<(std::ostream& out, Costs const& c) {
      return out << c.allocations << " allocations, " << c.frees << " frees, " << c.streams << " streams, " << c.pageable_copies << " copies of pageable memory";
    }
  };
  Costs costs() const { return {allocations, frees, streams_made, pageable_copies}; }
  std::atomic<int> allocations{0}, frees{0}, streams_made{0}, pageable_copies{0}, events_made{0};
  /// Up to so many microseconds pass before each piece of a stream's work, drawn anew each time: work that is not ordered by events
  /// then meets memory that is not written yet, or written again already.
  std::atomic<unsigned> jitter_us{0};

  memory::DeviceSearch find() override { return {1, ""}; }
  memory::DeviceInfo describe(int ordinal) override {
    memory::DeviceInfo info;
    info.ordinal = ordinal;
    info.name = "fake device";
    info.bus = "0000:00:00.0";
    info.total_bytes = capacity;
    return info;
  }
  void use(int) override {}

  void* allocate(std::size_t bytes) override {
    if (held + bytes > capacity) return nullptr;
    held += bytes;
    return kept(device_, bytes);
  }
  void* allocate_pinned(std::size_t bytes) override {
    pinned += bytes;
    return kept(pinned_, bytes);
  }
  void free(void* data) noexcept override { held -= dropped(device_, data); }
  void free_pinned(void* data) noexcept override { pinned -= dropped(pinned_, data); }
  Room room() override { return {capacity - held, capacity}; }
  bool on_device(void const* data) override { return lies_in(device_, data); }

  Stream make_stream(memory::StreamPriority) override {
    ++streams_made;
    return memory::make_worker_queue("fake stream").release();
  }
  void drop_stream(Stream stream) noexcept override { delete lane(stream); }
  Event make_event() override {
    ++events_made;
    return new memory::Event;
  }
  void drop_event(Event event) noexcept override { delete point(event); }
  void record(Event event, Stream stream) override { *point(event) = lane(stream)->record(); }
  void wait(Stream stream, Event event) override { lane(stream)->wait(*point(event)); }
  bool happened(Event event) override { return point(event)->done(); }
  void copy(Stream stream, void* to, void const* from, std::size_t bytes) override {
    bool const source_stays = lies_in(device_, from) || lies_in(pinned_, from);
    if (!source_stays || !(lies_in(device_, to) || lies_in(pinned_, to))) ++pageable_copies;
    if (source_stays) return add(stream, [=] { std::memcpy(to, from, bytes); });
    std::shared_ptr<std::byte[]> const read(new std::byte[bytes]);  // pageable memory is read before the call returns
    std::memcpy(read.get(), from, bytes);
    add(stream, [=] { std::memcpy(to, read.get(), bytes); });
  }
  void zero(Stream stream, void* data, std::size_t bytes) override {
    add(stream, [=] { std::memset(data, 0, bytes); });
  }
  void call_host(Stream stream, void (*function)(void*), void* argument) override {
    add(stream, [=] { function(argument); });
  }

 private:
  using Blocks = std::map<void*, std::size_t>;
  static memory::Queue* lane(Stream stream) { return static_cast<memory::Queue*>(stream); }
  static memory::Event* point(Event event) { return static_cast<memory::Event*>(event); }

  void add(Stream stream, std::function<void()> task) {
    lane(stream)->submit([this, task = std::move(task)] {
      if (unsigned const most = jitter_us; most > 0) std::this_thread::sleep_for(std::chrono::microseconds(draw() % most));
      task();
    });
  }
  unsigned draw() { return (random_ = random_ * 1664525u + 1013904223u) >> 8; }

  void* kept(Blocks& blocks, std::size_t bytes) {
    ++allocations;
    void* const data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(data, 0xEE, bytes);
    std::lock_guard const lock(mutex_);
    blocks[data] = bytes;
    return data;
  }
  /// What is used after it was given back shall be seen.
  std::size_t dropped(Blocks& blocks, void* data) noexcept {
    ++frees;
    std::lock_guard const lock(mutex_);
    auto const found = blocks.find(data);
    std::size_t const bytes = found->second;
    std::memset(data, 0xDD, bytes);
    blocks.erase(found);
    std::free(data);
    return bytes;
  }
  bool lies_in(Blocks const& blocks, void const* data) const {
    std::lock_guard const lock(mutex_);
    auto after = blocks.upper_bound(const_cast<void*>(data));
    if (after == blocks.begin()) return false;
    --after;
    return static_cast<std::byte const*>(data) < static_cast<std::byte*>(after->first) + after->second;
  }

  DeviceApi* former_;
  mutable std::mutex mutex_;
  std::atomic<unsigned> random_{1};
  Blocks device_, pinned_;
};

}  // namespace tessera::test
