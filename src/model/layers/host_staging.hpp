#pragma once
/// Host I/O staging of a micro-batch: tokens to the queue's memory, the sum of losses back. Neither
/// makes the caller wait for the queue. On a device, tokens go through pinned input buffers and the
/// sum is copied to a pinned buffer.

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "layers/pass.hpp"
#include "tessera/kernels/attention/rotary_tables.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/model/layers/batch.hpp"
#include "tessera/model/layers/documents.hpp"

namespace tessera::model::detail {

/// Deadline for enqueued work; a compute queue that exceeds it counts as stuck.
inline constexpr std::chrono::minutes queue_deadline{60};

/// Token ids and targets in memory that kernels read.
struct Inputs {
  TensorView tokens;   ///< [B, T] int32
  TensorView targets;  ///< [B * T] int32; -1 where no token is predicted
  TensorView
      order;  ///< [B * T] int32, positions by token, for the backward pass of a device; else empty
  TensorView documents{},
      positions{};              ///< [B, T] int32, of documents that are kept apart; or empty
  TensorView position_order{};  ///< [B * T] int32, positions by `positions`, like `order`
  kernels::DropoutPlace const* dropout_place = nullptr;  ///< place of a training pass
  LogitLoss* loss = nullptr;                             ///< loss of the batch
};
/// Whether a backward pass follows.
enum class PassKind { forward, training };

class PinnedInputBuffers {
 public:
  /// Copies a batch to the arena of the pass. The batch's tokens may change once this returns. A
  /// batch without tokens (of a pass that is only planned) copies nothing.
  Inputs stage(PassContext const& pass, Batch const& batch, PassKind kind,
               DocumentOptions const& documents = {});
  /// Copies @p values to the arena of the pass, [numel] int32. They may change once this returns.
  TensorView stage(PassContext const& pass, std::vector<std::int32_t> const& values);

 private:
  struct Slot {
    memory::Buffer buffer;  ///< pinned for a device
    memory::Event copied;   ///< the slot may be written again after it
  };
  /// The next slot, with room for @p numel values of a pass on @p compute.
  Slot& next_slot(std::int64_t numel, Queue const& compute);

  std::array<Slot, 3> slots_;  ///< one is copied, one waits, one is filled
  std::size_t next_ = 0;
};

class LossReadback {
 public:
  /// Enqueues the sum of @p losses [positions] fp32.
  LossSum sum(Queue& compute, ConstTensorView losses);
  /// Enqueues the sums of what the head has measured.
  void sum(Queue& compute, ConstTensorView hits, ConstTensorView entropy, TokenMetrics* out) {
    out->hits = std::make_shared<LossSum>(sum(compute, hits));
    out->entropy = std::make_shared<LossSum>(sum(compute, entropy));
  }

 private:
  struct Slot {
    memory::Buffer computed, arrived;  ///< a double each; on the host only the first
  };
  std::shared_ptr<Slot> free_slot(memory::MemorySpace space);

  std::vector<std::shared_ptr<Slot>> slots_;  ///< as many as sums were held at the same time
};

// Host staging of the tables that rotate heads: computed once per length, copied to the arena of
// each pass.

/// A pass that is only planned stages addresses only.
enum class Staging { planned, real };

class RotaryStaging {
 public:
  explicit RotaryStaging(kernels::RotaryOptions options) : options_(options) {}

  /// Tables of @p positions from 0 on in the arena of the pass. Frequencies that depend on the
  /// length are those of @p longest positions; none: of all.
  kernels::RotaryTables stage(PassContext const& pass, std::int64_t positions, Staging staging,
                              std::optional<std::int64_t> longest = {});

 private:
  struct Slot {
    memory::Buffer buffer;       ///< cos, then sin; pinned for a device
    std::int64_t positions = 0;  ///< positions of each of the two tables
    std::int64_t sequence = 0;   ///< whose frequencies they have
    memory::Event copied;        ///< the slot may be written again after it
  };
  Slot& slot_for(PassContext const& pass, std::int64_t positions, std::int64_t longest);
  void fill(Slot& slot, PassContext const& pass) const;
  /// Frequencies of dynamic scaling and longrope depend on the length; all others are those of
  /// length 0.
  std::int64_t frequencies_of(std::int64_t sequence) const;
  std::int64_t columns() const { return options_.rotary_dim / 2; }

  kernels::RotaryOptions options_;
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

}  // namespace tessera::model::detail
