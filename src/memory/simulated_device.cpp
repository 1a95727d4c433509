#include "tessera/memory/device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "detail/device_api.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::memory {
namespace {

using detail::DeviceApi;

Queue& queue_of(DeviceApi::Stream stream) { return *static_cast<Queue*>(stream); }
Event& point_of(DeviceApi::Event event) { return *static_cast<memory::Event*>(event); }

constexpr std::size_t huge_page = std::size_t{2} << 20;

std::size_t mapped_bytes(std::size_t bytes) {
  std::size_t const page = bytes < huge_page ? 4096 : huge_page;
  return round_up(bytes, page);
}

/// Null when the system has none.
void* map(std::size_t bytes) {
  std::size_t const size = mapped_bytes(bytes);
  void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  if (size >= huge_page) madvise(data, size, MADV_HUGEPAGE);
  return data;
}

void unmap(void* data, std::size_t bytes) { munmap(data, mapped_bytes(bytes)); }

/// Every stream is a worker queue, an event is a point in one, and memory is mapped from the host
/// up to the bound.
class HostDevice final : public DeviceApi {
 public:
  explicit HostDevice(SimulatedDevice const& device) : device_(device) {}
  ~HostDevice() override;

  void set_link(double bytes_per_second) {
    std::lock_guard const lock(mutex_);
    device_.link_bytes_per_second = bytes_per_second;
  }

  DeviceSearch find() override { return {1, ""}; }
  DeviceInfo describe(int ordinal) override;
  void use(int) override {}

  void* allocate(std::size_t bytes, Stream stream) override;
  void free(void* data, Stream stream) noexcept override;
  void trim() override {}
  void* allocate_pinned(std::size_t bytes) override;
  void free_pinned(void* data) noexcept override;
  MemoryInfo memory_info() override;
  bool on_device(void const* data) override;

  Stream make_stream(StreamPriority) override;
  void release_stream(Stream stream) noexcept override;
  Event make_event() override;
  void destroy_event(Event event) noexcept override;
  void record(Event event, Stream stream) override;
  void wait(Stream stream, Event event) override;
  bool happened(Event event) override;

  /// Copies as cudaMemcpyAsync does: pageable memory has been read or written when the call
  /// returns.
  void copy(Stream stream, void* to, void const* from, std::size_t bytes) override;
  void zero(Stream stream, void* data, std::size_t bytes) override;
  void call_host(Stream stream, void (*function)(void*), void* argument) override;

  /// @throws InternalError: there are no graphs without a GPU
  void begin_capture(Stream) override;
  Captured launch_captured(Stream, Graph&) override;
  void launch_graph(Stream, Graph) override;
  bool abandon_capture(Stream) noexcept override { return false; }
  void destroy_graph(Graph) noexcept override {}

 private:
  using Extents = std::map<std::byte*, std::size_t>;
  using Clock = std::chrono::steady_clock;
  enum class Direction { to_device, to_host };
  bool is_in(Extents const& extents, void const* data) const;
  /// When the link has moved what takes it @p seconds, after everything that it moves already.
  Clock::time_point reserve_link(Direction direction, double seconds);

  SimulatedDevice device_;
  mutable std::mutex mutex_;
  std::size_t held_ = 0;
  Extents memory_, pinned_;
  std::vector<Stream> released_;                ///< with the work that they still have
  std::array<Clock::time_point, 2> link_free_;  ///< when the link is free in each direction
};

HostDevice::~HostDevice() {
  for (auto const stream : released_) delete static_cast<Queue*>(stream);
}

DeviceInfo HostDevice::describe(int ordinal) {
  DeviceInfo info;
  info.ordinal = ordinal;
  info.name = "simulated in host memory";
  info.total_bytes = device_.memory_bytes;
  return info;
}

void* HostDevice::allocate(std::size_t bytes, Stream) {
  std::lock_guard const lock(mutex_);
  if (bytes > device_.memory_bytes - held_) return nullptr;
  void* const data = map(bytes);
  if (!data) return nullptr;
  held_ += bytes;
  memory_[static_cast<std::byte*>(data)] = bytes;
  return data;
}

void HostDevice::free(void* data, Stream stream) noexcept {
  std::lock_guard const lock(mutex_);
  auto const found = memory_.find(static_cast<std::byte*>(data));
  std::size_t const bytes = found->second;
  memory_.erase(found);
  held_ -= bytes;
  queue_of(stream).submit([=] { unmap(data, bytes); });
}

void* HostDevice::allocate_pinned(std::size_t bytes) {
  void* const data = map(bytes);
  std::lock_guard const lock(mutex_);
  if (data) pinned_[static_cast<std::byte*>(data)] = bytes;
  return data;
}

void HostDevice::free_pinned(void* data) noexcept {
  std::lock_guard const lock(mutex_);
  auto const found = pinned_.find(static_cast<std::byte*>(data));
  unmap(data, found->second);
  pinned_.erase(found);
}

DeviceApi::MemoryInfo HostDevice::memory_info() {
  std::lock_guard const lock(mutex_);
  return {device_.memory_bytes - held_, device_.memory_bytes};
}

bool HostDevice::on_device(void const* data) {
  std::lock_guard const lock(mutex_);
  return is_in(memory_, data);
}

bool HostDevice::is_in(Extents const& extents, void const* data) const {
  auto const* const address = static_cast<std::byte const*>(data);
  auto const after = extents.upper_bound(const_cast<std::byte*>(address));
  if (after == extents.begin()) return false;
  auto const extent = std::prev(after);
  return address < extent->first + extent->second;
}

DeviceApi::Stream HostDevice::make_stream(StreamPriority) {
  std::lock_guard const lock(mutex_);
  if (released_.empty()) return make_worker_queue("device stream").release();
  Stream const stream = released_.back();
  released_.pop_back();
  return stream;
}

void HostDevice::release_stream(Stream stream) noexcept {
  std::lock_guard const lock(mutex_);
  released_.push_back(stream);
}

DeviceApi::Event HostDevice::make_event() { return new memory::Event; }
void HostDevice::destroy_event(Event event) noexcept { delete &point_of(event); }
void HostDevice::record(Event event, Stream stream) { point_of(event) = queue_of(stream).record(); }
void HostDevice::wait(Stream stream, Event event) { queue_of(stream).wait(point_of(event)); }
bool HostDevice::happened(Event event) { return point_of(event).done(); }

void HostDevice::copy(Stream stream, void* to, void const* from, std::size_t bytes) {
  bool reads_pageable = false, writes_pageable = false;
  double rate = 0.0;
  Direction direction = Direction::to_host;
  {
    std::lock_guard const lock(mutex_);
    bool const from_device = is_in(memory_, from), to_device = is_in(memory_, to);
    reads_pageable = !from_device && !is_in(pinned_, from);
    writes_pageable = !to_device && !is_in(pinned_, to);
    if (from_device != to_device) rate = device_.link_bytes_per_second;
    if (to_device) direction = Direction::to_device;
  }
  std::shared_ptr<std::byte[]> staged;
  if (reads_pageable) {
    staged.reset(new std::byte[bytes]);
    std::memcpy(staged.get(), from, bytes);
  }
  auto& queue = queue_of(stream);
  queue.submit([=, this] {
    auto const end = rate > 0.0 ? reserve_link(direction, static_cast<double>(bytes) / rate)
                                : Clock::time_point();
    std::memcpy(to, staged ? staged.get() : from, bytes);
    if (rate > 0.0) std::this_thread::sleep_until(end);
  });
  if (writes_pageable) queue.record().wait_for(std::chrono::hours(24 * 365));
}

HostDevice::Clock::time_point HostDevice::reserve_link(Direction direction, double seconds) {
  std::chrono::duration<double> const time(seconds);
  std::lock_guard const lock(mutex_);
  auto& free_at = link_free_[static_cast<std::size_t>(direction)];
  free_at = std::max(free_at, Clock::now()) + std::chrono::duration_cast<Clock::duration>(time);
  return free_at;
}

void HostDevice::zero(Stream stream, void* data, std::size_t bytes) {
  queue_of(stream).submit([=] { std::memset(data, 0, bytes); });
}

void HostDevice::call_host(Stream stream, void (*function)(void*), void* argument) {
  queue_of(stream).submit([=] { function(argument); });
}

void HostDevice::begin_capture(Stream) {
  throw InternalError("a simulated device has no device graphs; leave --device_graphs out");
}
HostDevice::Captured HostDevice::launch_captured(Stream stream, Graph&) {
  begin_capture(stream);
  return {};
}
void HostDevice::launch_graph(Stream stream, Graph) { begin_capture(stream); }

HostDevice* simulated = nullptr;  ///< lives until the process ends, as owners of its memory

}  // namespace

void simulate_device(SimulatedDevice const& device) {
  simulated = new HostDevice(device);
  detail::replace_device_api(simulated);
}

void set_simulated_link(double bytes_per_second) {
  TESSERA_EXPECT(device_is_simulated());
  simulated->set_link(bytes_per_second);
}

bool device_is_simulated() { return simulated && detail::device_api_or_null() == simulated; }

}  // namespace tessera::memory
