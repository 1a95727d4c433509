#include "launch/partial_sums.hpp"

#include <deque>

#include "tessera/memory/device.hpp"

namespace tessera::kernels::detail {
namespace {

double* reserve(memory::Buffer& buffer, std::int64_t numel, memory::MemorySpace space) {
  auto const bytes = static_cast<std::size_t>(numel) * sizeof(double);
  if (buffer.bytes() < bytes) {
    buffer = memory::Buffer();
    buffer = memory::Buffer("partial sums", memory::Purpose::workspace, bytes, space);
  }
  return static_cast<double*>(buffer.data());
}

}  // namespace

HostPartialSums& HostPartialSums::of_process() {
  memory::MemoryTracker::of_process();  // made first, so that it outlives the buffer
  static HostPartialSums sums;
  return sums;
}

void HostPartialSums::use(std::int64_t numel, std::function<void(double* partial)> const& work) {
  std::lock_guard const lock(mutex_);
  work(reserve(partial_, numel, memory::MemorySpace::host));
}

double* device_partial_sums(std::int64_t numel) {
  // the driver may be gone before static objects are
  static auto& partials = *new std::deque<memory::Buffer>;
  if (partials.empty() ||
      partials.back().bytes() < static_cast<std::size_t>(numel) * sizeof(double))
    partials.emplace_back();
  return reserve(partials.back(), numel, memory::MemorySpace::device);
}

}  // namespace tessera::kernels::detail
