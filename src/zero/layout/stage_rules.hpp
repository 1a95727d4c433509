#pragma once
/// The meaning of a ZeRO stage as values: the rest of the layer reads these, never the stage
/// number.

#include <cstdint>

#include "tessera/zero/layout/engine_config.hpp"
#include "tessera/zero/layout/partition_plan.hpp"

namespace tessera::zero::detail {

/// The sum over the ranks is of gradients of the global mean loss, times `carried`. The reduction
/// multiplies them by `before`, that over copies of the states by `across`, and an all-reduce on a
/// wire of another dtype by `after`; the update divides the result by the loss scale times `left`.
struct Averaging {
  double carried = 1.0;
  double before = 1.0;
  double across = 1.0;
  double after = 1.0;
  double left = 1.0;
};

struct StageRules {
  bool shards_weights = false;         ///< stage 3: weights are gathered for a lease, of one rank
                                       ///< only where they are offloaded
  bool shards_gradients = false;       ///< stages 2, 3: reduce-scattered in every micro-step; else,
                                       ///< also with reduce_once, complete, reduced in the last
  bool shards_optimizer = false;       ///< stages 1..3: master weights and states of the shard only
  bool reduces = false;                ///< more than one rank shares a copy of the states
  Dtype gradient_dtype = Dtype::fp32;  ///< dtype of the gradients that the optimizer reads
  Averaging averaging;
  Dtype master_dtype = Dtype::fp32;  ///< ShardedStates::master_dtype
  /// A copy of another dtype than the weights; else these are the master
  bool separate_master = false;
  /// The model computes on a device, and master weights and states are in host memory or on a
  /// drive: the host updates them.
  bool offloads_optimizer = false;
  /// Then stages 2, 3: complete gradients of a unit leave the device in every micro-step; with
  /// reduce_once in the last.
  bool offloads_gradients = false;
  /// A device keeps copies of the weights in the dtype of products. Hosts convert a weight for each
  /// product: there a conversion is short next to the product, and memory is not.
  bool copies_weights = false;
};

/// A single rank owns every element: all stages are the same there and no data moves.
/// @param ranks that share a copy of the model states  @param space where the model computes
StageRules rules_for(EngineConfig const& config, int ranks,
                     memory::MemorySpace space = memory::MemorySpace::host, int copies = 1);

/// @throws InternalError for values that no engine can have together
void validate(EngineConfig const& config);
/// @throws InternalError for values with which no engine trains on @p ranks in all, in @p space
void validate_training(EngineConfig const& config, int ranks, memory::MemorySpace space);

/// The region of a unit that this rank updates, and its offset in the rank's flat state: the
/// complete unit when the optimizer is replicated, else the rank's shard.
struct Ownership {
  PartitionPlan const* plan = nullptr;
  Rank rank = first_rank;
  bool replicated = false;

  UnitOffset shard_begin(UnitIndex unit) const {
    return plan->unit(unit).unit_offset(rank, ShardOffset(0));
  }
  UnitOffset begin(UnitIndex unit) const { return replicated ? UnitOffset(0) : shard_begin(unit); }
  std::int64_t numel(UnitIndex unit) const {
    return replicated ? plan->unit(unit).padded_numel : plan->unit(unit).shard_numel;
  }
  std::int64_t state_offset(UnitIndex unit) const {
    return plan->unit(unit).partition_offset.value() * (replicated ? plan->ranks() : 1);
  }
  std::int64_t state_numel() const {
    return replicated ? plan->padded_count() : plan->partition_numel();
  }
  /// Returns the offset of this rank's shard within the region.
  std::int64_t shard_offset(UnitIndex unit) const { return shard_begin(unit) - begin(unit); }
};

/// Offset of a unit in a buffer that holds all units in full, one after the other.
inline std::int64_t full_offset(PartitionPlan const& plan, UnitIndex unit) {
  return plan.unit(unit).partition_offset.value() * plan.ranks();
}

}  // namespace tessera::zero::detail
