#pragma once
/// What the weights for inference and those that train have in common.

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/memory_report.hpp"
#include "layout/shard_groups.hpp"
#include "layout/stage_rules.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/zero/engine/weights.hpp"
#include "tessera/zero/layout/parameter_subset.hpp"
#include "transfer/shard_copies.hpp"
#include "weights/frozen_weights.hpp"

namespace tessera::zero::detail {

/// The destructor waits no longer than this for the compute queue; no update takes as long.
inline constexpr std::chrono::seconds shutdown_timeout{10};

inline std::optional<SwapUse> both(std::optional<SwapUse> a, std::optional<SwapUse> const& b) {
  if (!a) return b;
  if (b) a->is_direct = a->is_direct && b->is_direct;
  return a;
}

/// @p config for the groups that @p mesh has.
EngineConfig on_mesh(EngineConfig config, comm::Mesh const& mesh);
/// The mesh of replicas and shard groups that @p config describes, over the ranks of @p comm.
std::shared_ptr<comm::Mesh> own_mesh(EngineConfig const& config, comm::Collectives& comm);

/// Makes @p make's object on all ranks or on none. Collective.
template <class Make>
auto make_on_all_ranks(comm::Collectives& comm, Make const& make) {
  decltype(make()) made;
  std::exception_ptr refusal;
  try {
    made = make();
  } catch (OutOfMemoryError const&) {
    refusal = std::current_exception();
  } catch (IoError const&) {  // error of a drive for swapped states
    refusal = std::current_exception();
  }
  bool const all_have_memory = comm::agree(comm, !refusal);
  if (refusal) std::rethrow_exception(refusal);
  TESSERA_VALIDATE(
      all_have_memory, OutOfMemoryError,
      "another rank has no memory or no drive for its model states; see that rank's message, "
      "or use a higher ZeRO stage, more ranks, or fewer ranks on a node");
  return made;
}

/// Implements the weights of @p Interface, which is Weights or Engine.
template <class Interface>
class WeightsBase : public Interface {
 public:
  using typename Interface::Fill;

  WeightsBase(EngineConfig const& config, std::vector<memory::UnitSpec> const& units,
              std::shared_ptr<comm::Mesh> mesh, memory::Queue& compute)
      : config_(config),
        groups_(std::move(mesh), config),
        trained_(trained_parameters(units)),
        plan_(trained_.units, groups_.shards().size(), alignment_for(config.optimizer)),
        rules_(
            rules_for(config, plan_.ranks(), memory::memory_space_of(compute), groups_.copies())),
        frozen_(config, units, plan_, groups_, compute),
        trained_config_(with_share_of_limits(config, plan_, frozen_.plan())),
        context_{trained_config_,
                 plan_,
                 {&plan_, Rank(groups_.shards().rank()), !rules_.shards_optimizer},
                 groups_.shards(),
                 compute,
                 groups_.replicas(),
                 &groups_.world(),
                 groups_.secondary(),
                 groups_.node(),
                 groups_.rail(),
                 &trained_.units},
        weights_(make_weight_store(rules_, context_)) {}

  /// Waits for transfers and kernels in flight, because they use the buffers. Errors have been
  /// reported by the calls that waited for them; a stuck queue is given up after the timeout.
  ~WeightsBase() override { wait_for_weights(); }

  PartitionPlan const& plan() const override { return plan_; }
  PartitionPlan const& frozen_plan() const override { return frozen_.plan(); }
  std::vector<float> frozen_shard(UnitIndex unit) const override { return frozen_.shard(unit); }
  EngineConfig const& config() const override { return config_; }

  void initialize(Fill const& fill) override {
    weights_->prepare_update();
    std::exception_ptr failed;
    try {
      frozen_.fill(fill);
      weights_->finish_transfers();
      fill_own_weights(fill);
    } catch (...) {
      failed = std::current_exception();
    }
    bool const all_have_weights = comm::agree(groups_.world(), !failed);
    if (failed) std::rethrow_exception(failed);
    if (!all_have_weights)
      throw PeerLostError(
          -1, "another rank could not provide its initial weights; see that rank's error message");
    frozen_.distribute();
    distribute();
  }

  void begin_pass(memory::Pass, std::vector<UnitIndex> acquisitions) override {
    for (UnitIndex const unit : acquisitions) expect_unit(unit);
    acquisitions_ = acquisitions;
    acquired_ = 0;
    frozen_.set_prefetch_order(acquisitions);
    std::erase_if(acquisitions, [&](UnitIndex unit) { return !trains(unit); });
    weights_->set_prefetch_order(std::move(acquisitions));
  }

  memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) override {
    expect_unit(unit);
    bool const expected = acquired_ < acquisitions_.size() && acquisitions_[acquired_] == unit;
    TESSERA_VALIDATE(expected, InternalError, "acquisition ", acquired_, " of the pass is unit ",
                     plan_.unit(unit).name, " but ",
                     acquired_ < acquisitions_.size() ? plan_.unit(acquisitions_[acquired_]).name
                                                      : std::string("none"),
                     " was expected; begin_pass must list every acquire() in order");
    ++acquired_;
    return frozen_.acquire(
        unit, trains(unit) ? weights_->acquire(unit, compute) : memory::WeightLease{}, compute);
  }

  MemoryReport memory() const override {
    MemoryReport out;
    out.formula = weight_formula_bytes(config_, rules_, plan_, frozen_.plan_of_values()) +
                  frozen_.formula_code_bytes(rules_);
    for (auto const& part : reports()) {
      out.weights += part.weight_bytes;
      out.buffers += part.buffer_bytes;
      out.swapped_weights += part.swapped_bytes;
      out.swap = both(out.swap, part.swap);
      out.offloaded += part.host.bytes;
      out.pinned += part.host.pinned;
    }
    out.swapped = out.swapped_weights;
    out.offloaded_weights = out.offloaded;
    return out;
  }
  std::optional<PrefetchReport> prefetch() const override {
    std::optional<PrefetchReport> longest;
    for (auto const& part : reports())
      if (part.prefetch && (!longest || part.prefetch->seconds() > longest->seconds()))
        longest = part.prefetch;
    return longest;
  }

 protected:
  void expect_unit(UnitIndex unit) const {
    TESSERA_VALIDATE(unit >= first_unit && unit < plan_.end_unit(), InternalError, "unit ", unit,
                     " does not exist; the model has ", plan_.end_unit());
  }
  bool trains(UnitIndex unit) const { return !trained_.in_model[position(unit)].empty(); }
  /// The memory of the weights that train, and of each part of the frozen ones.
  std::vector<WeightReport> reports() const {
    auto out = frozen_.reports();
    out.push_back(weights_->report());
    return out;
  }
  void wait_for_weights() noexcept {
    try {
      frozen_.synchronize();
      weights_->synchronize();
      context_.compute.record().wait_for(shutdown_timeout);
    } catch (...) {
    }
  }
  /// Sets this rank's shards of the weights.
  virtual void fill_own_weights(Fill const& fill) {
    fill_shards(context_, *weights_, trained_, fill);
  }
  /// Updates the weights of all ranks after their shards changed.
  virtual void distribute() {
    for (UnitIndex u = first_unit; u < plan_.end_unit(); ++u) weights_->all_gather_updated(u);
    weights_->synchronize();
  }

  EngineConfig config_;
  ShardGroups groups_;
  ParameterSubset trained_;
  PartitionPlan plan_;  ///< plan of the parameters that train, as the rest of this class
  StageRules rules_;
  FrozenWeights frozen_;
  EngineConfig trained_config_;  ///< with their share of the limits
  StoreContext context_;
  std::unique_ptr<WeightStore> weights_;

 private:
  std::vector<UnitIndex> acquisitions_;
  std::size_t acquired_ = 0;
};

}  // namespace tessera::zero::detail
