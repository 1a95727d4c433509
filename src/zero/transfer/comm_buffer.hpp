#pragma once
/// A flat, zeroed array that takes part in collectives.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/swap_file.hpp"

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

  /// Makes a buffer in host memory, whatever memory the collectives allocate. Not collective.
  static CommBuffer in_host_memory(std::string const& name, memory::Purpose purpose, Dtype dtype,
                                   std::int64_t numel) {
    auto const buffer = std::make_shared<memory::Buffer>(
        name, purpose, static_cast<std::size_t>(numel) * size_of(dtype));
    return {{buffer, buffer->data()}, dtype, numel};
  }
  /// Makes a buffer of pages, which a drive reads and writes. @param space pinned or host; see
  /// memory::make_host_buffer()
  static CommBuffer in_host_pages(std::string const& name, memory::Purpose purpose, Dtype dtype,
                                  std::int64_t numel, memory::MemorySpace space) {
    std::size_t const bytes = static_cast<std::size_t>(numel) * size_of(dtype);
    auto const buffer = std::make_shared<memory::Buffer>(memory::make_host_buffer(
        name, purpose, bytes > 0 ? bytes + memory::swap_alignment : 0, space));
    auto const at = reinterpret_cast<std::uintptr_t>(buffer->data());
    std::size_t const past = at % memory::swap_alignment;
    auto* const page =
        static_cast<std::byte*>(buffer->data()) + (past == 0 ? 0 : memory::swap_alignment - past);
    CommBuffer out({buffer, page}, dtype, numel);
    out.is_pinned_ = buffer->space() == memory::MemorySpace::pinned;
    return out;
  }

  Dtype dtype() const { return dtype_; }
  bool is_pinned() const { return is_pinned_; }  ///< whether in_host_pages() made it
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
  CommBuffer(std::shared_ptr<void> owner, Dtype dtype, std::int64_t numel)
      : owner_(std::move(owner)), dtype_(dtype), numel_(numel) {}

  std::shared_ptr<void> owner_;
  Dtype dtype_ = Dtype::fp32;
  std::int64_t numel_ = 0;
  bool is_pinned_ = false;
};

}  // namespace tessera::zero::detail
