#include "tessera/memory/device.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "detail/device_api.hpp"
#include "detail/device_memory.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/launch_record.hpp"
#include "tessera/memory/limits.hpp"
#include "tessera/memory/work_trace.hpp"

namespace tessera::memory::detail {
namespace {
DeviceApi* replacement = nullptr;
}  // namespace

DeviceApi* device_api_or_null() { return replacement ? replacement : gpu_api(); }

DeviceApi* replace_device_api(DeviceApi* api) {
  reset_device_memory();
  return std::exchange(replacement, api);
}

DeviceApi& device_api() {
  DeviceApi* const api = device_api_or_null();
  TESSERA_VALIDATE(api, ConfigError,
                   "a device was requested, but this build has no GPU support; configure with "
                   "TESSERA_ENABLE_CUDA=ON (cmake --preset cuda)");
  return *api;
}

}  // namespace tessera::memory::detail

namespace tessera::memory {
bool built_with_gpu() { return detail::gpu_api() != nullptr; }
int device_runtime_version() { return detail::gpu_api_version(); }
int multiprocessors_of_device(int ordinal) { return detail::gpu_multiprocessors(ordinal); }

DeviceSearch find_devices() {
  auto* const api = detail::device_api_or_null();
  return api ? api->find()
             : DeviceSearch{0, "this build has no GPU support (TESSERA_ENABLE_CUDA is off)"};
}

DeviceInfo describe_device(int ordinal) {
  DeviceInfo info = detail::device_api().describe(ordinal);
  if (auto const limit = memory_limit(MemorySpace::device); limit > 0)
    info.total_bytes = std::min(info.total_bytes, limit);
  return info;
}

std::size_t free_device_bytes() { return detail::device_memory().info().free_bytes; }
void trim_device_pool() {
  if (detail::device_api_or_null()) detail::device_memory().trim();
}

namespace {

struct ZeroKernel {};
struct StridedBytes {
  std::size_t to_stride, from_stride, bytes, rows;
};

/// The host's memory may have been freed when the graph of a copy is launched again, and a device
/// that has read it in the call does not read it again: such copies are not recorded.
bool is_left_out(Queue& q, void* to, void const* from, StridedBytes const& extent) {
  if (!LaunchRecord::of(q) || !on_device(to) || !on_device(from)) return false;
  return leave_out<StridedBytes>(q, to, from, extent);
}

}  // namespace

void copy(Queue& q, void* to, void const* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (auto* const trace = WorkTrace::active())
    return trace->add(q, {.kind = PlannedWork::Kind::copy, .bytes = bytes});
  if (is_left_out(q, to, from, {bytes, bytes, bytes, 1})) return;
  if (q.native_stream()) return detail::device_api().copy(q.native_stream(), to, from, bytes);
  q.submit([to, from, bytes] { std::memcpy(to, from, bytes); });
}

void zero(Queue& q, void* data, std::size_t bytes) {
  if (bytes == 0 || leave_out<ZeroKernel>(q, data, bytes)) return;
  if (q.native_stream()) return detail::device_api().zero(q.native_stream(), data, bytes);
  q.submit([data, bytes] { std::memset(data, 0, bytes); });
}

/// cudaDevAttrMaxPitch: cudaMemcpy2DAsync refuses larger strides.
static constexpr std::size_t max_pitch = 0x7FFFFFFF;

void copy_rows(Queue& q, StridedRows to, ConstStridedRows from, std::size_t bytes,
               std::size_t rows) {
  if (bytes == 0 || rows == 0) return;
  if (auto* const trace = WorkTrace::active())
    return trace->add(q, {.kind = PlannedWork::Kind::copy, .bytes = bytes * rows});
  if (q.native_stream() && std::max(to.stride, from.stride) <= max_pitch) {
    if (is_left_out(q, to.data, from.data, {to.stride, from.stride, bytes, rows})) return;
    return detail::device_api().copy_rows(q.native_stream(), to, from, bytes, rows);
  }
  for (std::size_t row = 0; row < rows; ++row)
    copy(q, static_cast<std::byte*>(to.data) + row * to.stride,
         static_cast<std::byte const*>(from.data) + row * from.stride, bytes);
}

void check_launch(Queue& q, char const* kernel) {
  if (q.native_stream()) detail::device_api().check_launch(kernel);
}

StreamMark mark(Queue& q) { return detail::device_api().mark(q.native_stream()); }
double seconds_between(StreamMark begin, StreamMark end) {
  return detail::device_api().seconds_between(begin, end);
}

bool on_gpu(Queue const& q) {
  return q.native_stream() && &detail::device_api() == detail::gpu_api();
}

bool wait_for_streams(std::chrono::milliseconds time) noexcept {
  try {
    return !detail::device_api_or_null() || detail::device_memory().wait_for_streams(time);
  } catch (...) {
    return true;  // the device has failed: its streams have stopped
  }
}

bool on_device(void const* data) {
  auto* const api = detail::device_api_or_null();
  return api && data && api->on_device(data);
}

}  // namespace tessera::memory
