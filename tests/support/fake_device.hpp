#pragma once
/// A device runtime on host memory: every stream is a host thread, events are points of its lane, and what a program asks of the
/// device can be counted and limited. For the contracts of the layers above; kernels do not run on it.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "detail/device_api.hpp"

namespace tessera::test {

class FakeDevice final : public memory::detail::DeviceApi {
 public:
  FakeDevice() : former_(memory::detail::replace_device_api(this)) {}
  ~FakeDevice() override { memory::detail::replace_device_api(former_); }

  std::size_t capacity = std::size_t{64} << 20;
  std::atomic<std::size_t> held{0}, pinned{0};
  std::atomic<int> allocations{0}, events_made{0};

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
    ++allocations;
    held += bytes;
    void* const data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(data, 0xEE, bytes);
    std::lock_guard const lock(mutex_);
    sizes_[data] = bytes;
    return data;
  }
  void* allocate_pinned(std::size_t bytes) override {
    pinned += bytes;
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  void free(void* data) noexcept override {
    std::lock_guard const lock(mutex_);
    held -= sizes_.at(data);
    sizes_.erase(data);
    std::free(data);
  }
  void free_pinned(void* data) noexcept override { std::free(data); }
  Room room() override { return {capacity - held, capacity}; }
  bool on_device(void const* data) override {
    std::lock_guard const lock(mutex_);
    auto after = sizes_.upper_bound(const_cast<void*>(data));
    if (after == sizes_.begin()) return false;
    --after;
    return static_cast<std::byte const*>(data) < static_cast<std::byte*>(after->first) + after->second;
  }

  Stream make_stream(memory::StreamPriority) override { return memory::make_worker_queue("fake stream").release(); }
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
    lane(stream)->submit([=] { std::memcpy(to, from, bytes); });
  }
  void zero(Stream stream, void* data, std::size_t bytes) override {
    lane(stream)->submit([=] { std::memset(data, 0, bytes); });
  }
  void call_host(Stream stream, void (*function)(void*), void* argument) override {
    lane(stream)->submit([=] { function(argument); });
  }

 private:
  static memory::Queue* lane(Stream stream) { return static_cast<memory::Queue*>(stream); }
  static memory::Event* point(Event event) { return static_cast<memory::Event*>(event); }

  DeviceApi* former_;
  mutable std::mutex mutex_;
  std::map<void*, std::size_t> sizes_;
};

}  // namespace tessera::test
