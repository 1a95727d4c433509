#pragma once
/// The parameters that do not train: working weights with a partition of their own, or codes of
/// them, and nothing else.

#include <memory>
#include <vector>

#include "layout/shard_groups.hpp"
#include "weights/frozen_part.hpp"

namespace tessera::zero::detail {

/// The limits of gathered weights, and of those that a drive leaves in memory, for one of two
/// stores: its part of all elements.
EngineConfig with_share_of_limits(EngineConfig config, PartitionPlan const& part,
                                  PartitionPlan const& other);

class FrozenWeights {
 public:
  /// @param trained the plan of the parameters that train
  FrozenWeights(EngineConfig const& config, std::vector<memory::UnitSpec> const& units,
                PartitionPlan const& trained, ShardGroups const& groups, memory::Queue& compute);

  /// The plan of all frozen parameters, and of those that are kept as values.
  PartitionPlan const& plan() const { return plan_; }
  PartitionPlan const& plan_of_values() const { return plan_of_values_; }
  /// Bytes of codes per rank by the formula of the stage, without padding.
  std::size_t formula_code_bytes(StageRules const& rules) const;
  void set_prefetch_order(std::vector<UnitIndex> const& acquisitions);
  /// Views of @p trained, if it has any, at their places in the model's unit, and the frozen ones
  /// between.
  memory::WeightLease acquire(UnitIndex unit, memory::WeightLease trained, memory::Queue& compute);
  /// Sets this rank's shards.
  void fill(WeightFill const& fill);
  /// Updates the weights of all ranks after their shards changed. Collective.
  void distribute();
  /// The values of this rank's shard. @pre none is kept as codes
  std::vector<float> shard(UnitIndex unit) const;
  void synchronize();
  std::vector<WeightReport> reports() const;

 private:
  PartitionPlan plan_, plan_of_values_;
  std::vector<std::unique_ptr<FrozenPart>> parts_;  ///< parts that have parameters
};

}  // namespace tessera::zero::detail
