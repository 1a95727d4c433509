#pragma once
/// Frozen parameters that are kept in one way: as values, or as codes (quantized_weights.hpp).

#include <memory>
#include <vector>

#include "tessera/zero/layout/parameter_subset.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

/// Resident or gathered, as the rules say.
std::unique_ptr<WeightStore> make_weight_store(StageRules const& rules,
                                               StoreContext const& context);

/// This rank's shard of @p unit in the working weights.
memory::TensorView shard_of(StoreContext const& context, UpdateRegions const& weights,
                            UnitIndex unit);

/// Writes this rank's shards of working weights, rounded from fp32. Blocks the host.
void fill_shards(StoreContext const& context, UpdateRegions const& weights,
                 ParameterSubset const& subset, WeightFill const& fill);

class FrozenPart {
 public:
  /// @param subset the parameters  @param plan of what the store keeps, with dtype @p config.dtype
  /// @param like the groups, rank and queue of the parameters
  FrozenPart(ParameterSubset subset, PartitionPlan plan, EngineConfig config,
             StageRules const& rules, StoreContext const& like);
  virtual ~FrozenPart() = default;

  PartitionPlan const& plan() const { return plan_; }
  /// Where the parameters of @p unit are in the model's unit.
  std::vector<std::size_t> const& in_model(UnitIndex unit) const {
    return subset_.in_model[position(unit)];
  }
  virtual void set_prefetch_order(std::vector<UnitIndex> acquisitions);
  /// @pre the part has parameters of @p unit
  virtual memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) {
    return store_->acquire(unit, compute);
  }
  virtual void fill(WeightFill const& fill);
  void distribute();
  virtual std::vector<float> shard(UnitIndex unit) const;
  void synchronize() { store_->synchronize(); }
  /// Bytes of codes on all ranks together.
  virtual std::int64_t code_bytes() const { return 0; }
  virtual WeightReport report() const { return store_->report(); }

 protected:
  ParameterSubset subset_;
  PartitionPlan plan_;
  EngineConfig config_;
  StoreContext context_;
  std::unique_ptr<WeightStore> store_;
};

}  // namespace tessera::zero::detail
