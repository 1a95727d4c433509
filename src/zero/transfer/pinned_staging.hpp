#pragma once
/// Values of a device as fp32 in host memory: they pass through pinned memory in pieces, and the
/// host converts one piece while the next is copied.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/memory/buffer.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::zero::detail {

class PinnedStaging {
 public:
  /// @param queue of the device; earlier work of it writes the values
  /// @param most values that are copied at a time, of @p dtype
  PinnedStaging(memory::Queue& queue, Dtype dtype, std::int64_t most);

  /// to [from.numel()] has the values after finish().
  void read(float* to, memory::ConstTensorView const& from);
  /// Later work of the queue reads the values; @p from may change when the call returns.
  void write(memory::TensorView const& to, float const* from);
  /// Blocks the host until everything has been copied.
  void finish();

  /// Elements of a piece at most.
  static constexpr std::int64_t piece_numel = std::int64_t{1} << 22;

 private:
  struct Piece {
    memory::Buffer buffer;
    memory::Event copied;
    float* to = nullptr;  ///< target of values on their way to the host
    std::int64_t numel = 0;
  };
  /// The piece that was used before the other, with nothing in it.
  Piece& next();
  void empty(Piece& piece);

  memory::Queue& queue_;
  Dtype dtype_;
  std::int64_t capacity_;
  std::array<Piece, 2> pieces_;
  std::size_t last_ = 0;
  std::unique_ptr<memory::Queue> conversions_;
};

}  // namespace tessera::zero::detail
