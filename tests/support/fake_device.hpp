#pragma once
/// A device runtime on host memory: every stream is a host thread, events are points in its
/// queue, and requests to the device can be counted, limited and delayed. Kernels on its
/// streams run as host tasks in the stream's order (memory::on_gpu is false).

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "detail/device_api.hpp"
#include "tessera/core/error.hpp"

namespace tessera::test {

class FakeDevice : public memory::detail::DeviceApi {
 public:
  /// A device that exists until the process ends, as a real one: some workspaces live as long.
  static FakeDevice& of_process() {
    static FakeDevice& device = *new FakeDevice;
    return device;
  }
  FakeDevice() : previous_(memory::detail::replace_device_api(this)) {}
  ~FakeDevice() override {
    memory::detail::replace_device_api(previous_);
    for (auto const stream : dropped_) delete queue_of(stream);
    for (auto const& [bytes, data] : freed_) std::free(data);
  }

  std::size_t capacity = std::size_t{64} << 20;
  std::atomic<std::size_t> held{0}, pinned{0};  ///< bytes now
  /// What a step may not do: allocate or free memory, create streams, copy from or to pageable
  /// memory (CUDA blocks the caller).
  struct Costs {
    int allocations = 0, frees = 0, streams = 0, pageable_copies = 0;
    bool operator==(Costs const&) const = default;
    friend std::ostream& operator<<(std::ostream& out, Costs const& c) {
      return out << c.allocations << " allocations, " << c.frees << " frees, " << c.streams
                 << " streams, " << c.pageable_copies << " copies of pageable memory";
    }
  };
  Costs costs() const { return {allocations, frees, streams_made, pageable_copies}; }
  std::atomic<int> allocations{0}, frees{0}, streams_made{0}, pageable_copies{0}, events_made{0};
  std::atomic<int> reused{0}, trims{0};
  /// Delays each task of a stream by a random time of at most this many microseconds: tasks that
  /// are not ordered by events then read memory that is not yet written, or already overwritten.
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

  /// Allocates as CUDA's pools do: it returns freed memory of the same size immediately, even if
  /// other streams still use it.
  void* allocate(std::size_t bytes, Stream stream) override {
    expect_no_host_call();
    ++allocations;
    std::lock_guard const lock(mutex_);
    pool_stream_ = stream;
    void* data = nullptr;
    if (auto const again = freed_.find(bytes); again != freed_.end()) {
      ++reused;
      data = again->second;
      freed_.erase(again);
      freed_bytes_ -= bytes;
    } else {
      if (held + freed_bytes_ + bytes > capacity) return nullptr;
      data = filled(bytes);
    }
    held += bytes;
    device_[data] = bytes;
    return data;
  }
  /// What is used after it was given back shall be seen, in the order of the pool's stream.
  void free(void* data, Stream stream) noexcept override {
    expect_no_host_call();
    ++frees;
    std::lock_guard const lock(mutex_);
    auto const found = device_.find(data);
    std::size_t const bytes = found->second;
    queue_of(stream)->submit([=] { std::memset(data, 0xDD, bytes); });
    device_.erase(found);
    held -= bytes;
    freed_.emplace(bytes, data);
    freed_bytes_ += bytes;
  }
  void trim() override {
    std::lock_guard const lock(mutex_);
    ++trims;
    for (auto const& [bytes, data] : freed_)
      queue_of(pool_stream_)->submit([data = data] { std::free(data); });
    freed_.clear();
    freed_bytes_ = 0;
  }
  void* allocate_pinned(std::size_t bytes) override {
    ++allocations;
    std::lock_guard const lock(mutex_);
    void* const data = filled(bytes);
    pinned_[data] = bytes;
    pinned += bytes;
    return data;
  }
  void free_pinned(void* data) noexcept override {
    expect_no_host_call();
    ++frees;
    std::lock_guard const lock(mutex_);
    pinned -= pinned_.at(data);
    pinned_.erase(data);
    std::free(data);
  }
  MemoryInfo memory_info() override { return {capacity - held, capacity}; }
  bool on_device(void const* data) override { return lies_in(device_, data); }
  /// Whether all these bytes are in one block.
  bool covers(void const* data, std::size_t bytes) const {
    std::lock_guard const lock(mutex_);
    auto after = device_.upper_bound(const_cast<void*>(data));
    if (bytes == 0 || after == device_.begin()) return bytes == 0;
    --after;
    return static_cast<std::byte const*>(data) + bytes <=
           static_cast<std::byte*>(after->first) + after->second;
  }
  /// Memory that belongs to no pool and to no stream's order, as libraries take it.
  void* allocate_apart(std::size_t bytes) {
    ++allocations;
    std::lock_guard const lock(mutex_);
    if (held + freed_bytes_ + bytes > capacity) return nullptr;
    void* const data = filled(bytes);
    device_[data] = bytes;
    held += bytes;
    return data;
  }
  void free_apart(void* data) {
    ++frees;
    std::lock_guard const lock(mutex_);
    std::size_t const bytes = device_.at(data);
    std::memset(data, 0xDD, bytes);
    device_.erase(data);
    held -= bytes;
    std::free(data);
  }

  /// Streams are kept for the next queue, with the work that they still have, as CUDA's are.
  Stream make_stream(memory::StreamPriority) override {
    ++streams_made;
    std::lock_guard const lock(mutex_);
    if (dropped_.empty()) return memory::make_worker_queue("fake stream").release();
    Stream const stream = dropped_.back();
    dropped_.pop_back();
    return stream;
  }
  void release_stream(Stream stream) noexcept override {
    std::lock_guard const lock(mutex_);
    dropped_.push_back(stream);
  }
  Event make_event() override {
    expect_no_host_call();
    ++events_made;
    return new memory::Event;
  }
  void destroy_event(Event event) noexcept override {
    expect_no_host_call();
    delete point(event);
  }
  void record(Event event, Stream stream) override {
    expect_no_host_call();
    graphs_broken += collected_.contains(stream);
    *point(event) = queue_of(stream)->record();
  }
  void wait(Stream stream, Event event) override {
    expect_no_host_call();
    graphs_broken += collected_.contains(stream);
    queue_of(stream)->wait(*point(event));
  }
  bool happened(Event event) override { return point(event)->done(); }
  void copy(Stream stream, void* to, void const* from, std::size_t bytes) override {
    bool const source_stays = lies_in(device_, from) || lies_in(pinned_, from);
    if (!source_stays || !(lies_in(device_, to) || lies_in(pinned_, to))) ++pageable_copies;
    if (source_stays) return add(stream, [=] { std::memcpy(to, from, bytes); });
    std::shared_ptr<std::byte[]> const read(
        new std::byte[bytes]);  // pageable memory is read before the call returns
    std::memcpy(read.get(), from, bytes);
    add(stream, [=] { std::memcpy(to, read.get(), bytes); });
  }
  void copy_rows(Stream stream, memory::StridedRows to, memory::ConstStridedRows from,
                 std::size_t bytes, std::size_t rows) override {
    EXPECT_LE(std::max({to.stride, from.stride, bytes}), 0x7FFFFFFFu)
        << "cudaErrorInvalidPitchValue";
    EXPECT_LE(bytes, std::min(to.stride, from.stride)) << "cudaErrorInvalidPitchValue";
    DeviceApi::copy_rows(stream, to, from, bytes, rows);
  }
  /// Tests touch this memory from the host without a queue, so a new block is zeroed when it is
  /// given out, if nothing blocks the pool's stream.
  void zero(Stream stream, void* data, std::size_t bytes) override {
    if (stream == pool_stream_ &&
        queue_of(stream)->record().wait_for(std::chrono::milliseconds(200)))
      std::memset(data, 0, bytes);
    else
      add(stream, [=] { std::memset(data, 0, bytes); });
  }
  void call_host(Stream stream, void (*function)(void*), void* argument) override {
    add(stream, [=] {
      in_host_call_ = true;
      function(argument);
      in_host_call_ = false;
    });
  }

  /// A graph's form is the number of its pieces of work.
  std::atomic<int> graphs_made{0}, graphs_updated{0}, graphs_replayed{0}, graphs_held{0},
      graphs_broken{0};                     // broken: events on a stream under capture
  std::atomic<bool> refuses_graphs{false};  ///< simulates a device without memory for graphs
  void begin_capture(Stream stream) override { collected_[stream]; }
  Captured launch_captured(Stream stream, Graph& graph) override {
    auto work = collected_.extract(stream).mapped();
    if (refuses_graphs) throw OutOfMemoryError("no memory for a graph");
    bool const fits = graph && held_work(graph)->size() == work.size();
    if (graph && !fits) destroy_graph(std::exchange(graph, nullptr));
    ++(fits ? graphs_updated : graphs_made);
    graphs_held += !fits;
    if (!fits) graph = new Work;
    *held_work(graph) = std::move(work);
    add_all(stream, graph);
    return fits ? Captured::updated : Captured::instantiated;
  }
  void launch_graph(Stream stream, Graph graph) override {
    ++graphs_replayed;
    add_all(stream, graph);
  }
  bool abandon_capture(Stream stream) noexcept override {
    return collected_.extract(stream).mapped().empty();
  }
  void destroy_graph(Graph graph) noexcept override {
    --graphs_held;
    delete held_work(graph);
  }

 private:
  using Blocks = std::map<void*, std::size_t>;
  static memory::Queue* queue_of(Stream stream) { return static_cast<memory::Queue*>(stream); }
  static memory::Event* point(Event event) { return static_cast<memory::Event*>(event); }

  /// cudaLaunchHostFunc: the function must not make calls of the device.
  static void expect_no_host_call() {
    EXPECT_FALSE(in_host_call_) << "a host function of a stream calls the device";
  }
  static inline thread_local bool in_host_call_ = false;

  using Work = std::vector<std::function<void()>>;
  static Work* held_work(Graph graph) { return static_cast<Work*>(graph); }
  void add_all(Stream stream, Graph graph) {
    for (auto const& task : *held_work(graph)) add(stream, task);
  }

  void add(Stream stream, std::function<void()> task) {
    if (auto const collecting = collected_.find(stream); collecting != collected_.end())
      return collecting->second.push_back(std::move(task));
    queue_of(stream)->submit([this, task = std::move(task)] {
      if (unsigned const most = jitter_us; most > 0)
        std::this_thread::sleep_for(std::chrono::microseconds(draw() % most));
      task();
    });
  }
  unsigned draw() { return (random_ = random_ * 1664525u + 1013904223u) >> 8; }

  static void* filled(std::size_t bytes) {
    void* const data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(data, 0xEE, bytes);
    return data;
  }
  bool lies_in(Blocks const& blocks, void const* data) const {
    std::lock_guard const lock(mutex_);
    auto after = blocks.upper_bound(const_cast<void*>(data));
    if (after == blocks.begin()) return false;
    --after;
    return static_cast<std::byte const*>(data) <
           static_cast<std::byte*>(after->first) + after->second;
  }

  DeviceApi* previous_;
  mutable std::mutex mutex_;
  std::atomic<unsigned> random_{1};
  Blocks device_, pinned_;
  std::multimap<std::size_t, void*> freed_;  ///< and not given out again, by size
  std::size_t freed_bytes_ = 0;
  std::atomic<Stream> pool_stream_{nullptr};  ///< on which all memory is taken and freed
  std::vector<Stream> dropped_;
  /// Work of streams under capture; the tests capture in one thread
  std::map<Stream, Work> collected_;
};

}  // namespace tessera::test
