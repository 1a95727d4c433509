#pragma once
/// What crosses between the host and a queue's memory in a micro-batch: tokens in, the sum of the
/// losses out. Neither makes the caller wait for the queue: on a device the tokens go through a
/// ring of pinned buffers, and the sum arrives in one of its own.

#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "detail/pass.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/model/causal_lm.hpp"

namespace tessera::model::detail {

/// Longest time the compute queue may take for what it has been given before it counts as stuck.
inline constexpr std::chrono::minutes queue_deadline{60};

/// Token ids and targets, where kernels can read them.
struct Inputs {
  TensorView tokens;   ///< [B, T] int32
  TensorView targets;  ///< [B * T] int32; -1 at the last position of each row
  TensorView
      order;  ///< [B * T] int32, positions by token, for the backward pass of a device; else empty
};
/// Whether a backward pass follows.
enum class PassKind { forward, training };

class PinnedInputBuffers {
 public:
  /// Into memory of the pass's arena. The batch's tokens may change once this returns.
  Inputs stage(PassContext const& pass, Batch const& batch, PassKind kind);

 private:
  struct Slot {
    memory::Buffer buffer;  ///< pinned for a device
    memory::Event copied;   ///< before it the slot may not be written again
  };
  std::int32_t* reserve(Slot& slot, std::int64_t numel, memory::MemorySpace wanted_on);

  std::array<Slot, 3>
      slots_;  ///< of queues that run by themselves: one is copied, one waits, one is filled
  std::size_t next_ = 0;
};

class LossReadback {
 public:
  /// The sum of @p losses [positions] fp32, as the queue computes it after what it has been given
  /// so far.
  LossSum sum(Queue& compute, ConstTensorView losses);

 private:
  struct Slot {
    memory::Buffer computed, arrived;  ///< a double each; on the host only the first
  };
  std::shared_ptr<Slot> free_slot(memory::MemorySpace space);

  std::vector<std::shared_ptr<Slot>> slots_;  ///< as many as sums were wanted at the same time
};

}  // namespace tessera::model::detail
