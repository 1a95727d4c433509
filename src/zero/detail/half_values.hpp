#pragma once
/// 16-bit values in any memory space, and the same values as fp32 in host memory.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/core/dtype.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::zero::detail {

/// Converts on the host; values of a device pass through a buffer. Both calls block the host.
class HalfValues {
 public:
  /// @param queue of the 16-bit values  @param most elements of one call
  HalfValues(memory::Queue& queue, memory::MemorySpace space, Dtype dtype, std::int64_t most);
  void read(float* to, void const* from, std::int64_t numel);
  void write(void* to, float const* from, std::int64_t numel);

 private:
  std::size_t bytes_of(std::int64_t numel) const;
  void wait();

  memory::Queue& queue_;
  Dtype dtype_;
  bool is_on_device_;
  memory::Buffer staging_;
  std::unique_ptr<memory::Queue> conversions_;
};

}  // namespace tessera::zero::detail
