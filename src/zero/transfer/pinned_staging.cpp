#include "transfer/pinned_staging.hpp"

#include <algorithm>
#include <utility>

#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

PinnedStaging::PinnedStaging(memory::Queue& queue, Dtype dtype, std::int64_t most)
    : queue_(queue),
      dtype_(dtype),
      capacity_(std::min(most, piece_numel)),
      conversions_(memory::make_inline_queue("conversions")) {
  for (auto& piece : pieces_)
    piece.buffer = memory::make_host_buffer("copies of states", memory::Purpose::workspace,
                                            static_cast<std::size_t>(capacity_) * size_of(dtype),
                                            memory::MemorySpace::pinned);
}

PinnedStaging::Piece& PinnedStaging::next() {
  last_ = (last_ + 1) % pieces_.size();
  empty(pieces_[last_]);
  return pieces_[last_];
}

void PinnedStaging::empty(Piece& piece) {
  piece.copied.wait("copies of the optimizer state", compute_deadline);
  if (float* const to = std::exchange(piece.to, nullptr))
    kernels::cast(*conversions_, {to, Dtype::fp32, {piece.numel}},
                  memory::ConstTensorView(piece.buffer.data(), dtype_, {piece.numel}));
}

void PinnedStaging::read(float* to, memory::ConstTensorView const& from) {
  for (std::int64_t at = 0; at < from.numel(); at += capacity_) {
    auto& piece = next();
    piece.to = to + at;
    piece.numel = std::min(capacity_, from.numel() - at);
    auto const values = from.rows(at, piece.numel);
    memory::copy(queue_, piece.buffer.data(), values.data(), values.bytes());
    piece.copied = queue_.record();
  }
}

void PinnedStaging::write(memory::TensorView const& to, float const* from) {
  for (std::int64_t at = 0; at < to.numel(); at += capacity_) {
    auto& piece = next();
    auto const values = to.rows(at, std::min(capacity_, to.numel() - at));
    kernels::cast(*conversions_, {piece.buffer.data(), dtype_, {values.numel()}},
                  memory::ConstTensorView(from + at, Dtype::fp32, {values.numel()}));
    memory::copy(queue_, values.data(), piece.buffer.data(), values.bytes());
    piece.copied = queue_.record();
  }
}

void PinnedStaging::finish() {
  empty(next());
  empty(next());
}

}  // namespace tessera::zero::detail
