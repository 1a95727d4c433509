#pragma once
/// The parameters that do not train: working weights with a partition of their own, and nothing
/// else.

#include <memory>
#include <vector>

#include "layout/shard_groups.hpp"
#include "tessera/zero/layout/parameter_subset.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

/// Resident or gathered, as the rules say.
std::unique_ptr<WeightStore> make_weight_store(StageRules const& rules,
                                               StoreContext const& context);

/// Writes this rank's shards of working weights, rounded from fp32. Blocks the host.
void fill_shards(StoreContext const& context, UpdateRegions const& weights,
                 ParameterSubset const& subset, WeightFill const& fill);

/// The limits of gathered weights, and of those that a drive leaves in memory, for one of two
/// stores: its part of all elements.
EngineConfig with_share_of_limits(EngineConfig config, PartitionPlan const& part,
                                  PartitionPlan const& other);

class FrozenWeights {
 public:
  /// @param trained the plan of the parameters that train
  FrozenWeights(EngineConfig const& config, std::vector<memory::UnitSpec> const& units,
                PartitionPlan const& trained, ShardGroups const& groups, memory::Queue& compute);

  PartitionPlan const& plan() const { return plan_; }
  bool has(UnitIndex unit) const { return !subset_.in_model[position(unit)].empty(); }
  void set_prefetch_order(std::vector<UnitIndex> acquisitions);
  /// Views of @p trained, if it has any, at their places in the model's unit, and the frozen ones
  /// between.
  memory::WeightLease acquire(UnitIndex unit, memory::WeightLease trained, memory::Queue& compute);
  /// Sets this rank's shards.
  void fill(WeightFill const& fill);
  /// Updates the weights of all ranks after their shards changed. Collective.
  void distribute();
  std::vector<float> shard(UnitIndex unit) const;
  void synchronize();
  WeightReport report() const { return store_ ? store_->report() : WeightReport{}; }

 private:
  EngineConfig config_;
  ParameterSubset subset_;
  PartitionPlan plan_;
  StoreContext context_;
  std::unique_ptr<WeightStore> store_;  ///< null: every parameter trains
};

}  // namespace tessera::zero::detail
