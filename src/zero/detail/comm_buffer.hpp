#pragma once
/// A flat, zeroed array that takes part in collectives.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tessera/comm/collectives.hpp"

namespace tessera::zero::detail {

class CommBuffer {
 public:
  CommBuffer() = default;
  /// Collective, like Collectives::allocate().
  CommBuffer(comm::Collectives& comm, std::string const& name, memory::Purpose purpose, Dtype dtype,
             std::int64_t numel)
      : owner_(comm.allocate(name, purpose, static_cast<std::size_t>(numel) * size_of(dtype))),
        dtype_(dtype),
        numel_(numel) {}

  /// The same in host memory, whatever memory the collectives allocate. Not collective.
  static CommBuffer in_host_memory(std::string const& name, memory::Purpose purpose, Dtype dtype,
                                   std::int64_t numel) {
    auto const buffer = std::make_shared<memory::Buffer>(
        name, purpose, static_cast<std::size_t>(numel) * size_of(dtype));
    CommBuffer out;
    out.owner_ = {buffer, buffer->data()};
    out.dtype_ = dtype;
    out.numel_ = numel;
    return out;
  }

  Dtype dtype() const { return dtype_; }
  std::size_t bytes() const { return static_cast<std::size_t>(numel_) * size_of(dtype_); }
  void* at(std::int64_t element) const {
    return static_cast<std::byte*>(owner_.get()) +
           static_cast<std::size_t>(element) * size_of(dtype_);
  }
  memory::TensorView view(std::int64_t first, std::int64_t numel) const {
    TESSERA_EXPECT(first >= 0 && first + numel <= numel_);
    return {at(first), dtype_, {numel}};
  }

 private:
  std::shared_ptr<void> owner_;
  Dtype dtype_ = Dtype::fp32;
  std::int64_t numel_ = 0;
};

}  // namespace tessera::zero::detail
