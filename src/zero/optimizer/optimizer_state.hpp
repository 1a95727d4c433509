#pragma once
/// Master weights and optimizer states of the region that this rank updates: a storage has them, a
/// rule updates them, and a schedule says which range is updated where.

#include <memory>
#include <optional>
#include <vector>

#include "gradients/gradient_flow.hpp"
#include "optimizer/host_update.hpp"
#include "optimizer/norm_and_overflow.hpp"
#include "optimizer/state_hashes.hpp"
#include "optimizer/state_shards.hpp"
#include "optimizer/state_table.hpp"
#include "optimizer/update_rule.hpp"
#include "optimizer/update_schedule.hpp"

namespace tessera::zero::detail {

class OptimizerState {
 public:
  struct Inputs {
    WeightStore& weights;
    GradientFlow& gradients;
    optim::Optimizer const& optimizer;
    /// Updates what is offloaded, else null: master weights and states of these units are in host
    /// memory. Outlives this.
    HostUpdate* host = nullptr;
    HostGradients* host_gradients = nullptr;
  };
  OptimizerState(StoreContext const& context, StageRules const& rules, Inputs const& inputs)
      : OptimizerState(context, rules, inputs, setup(context, rules, inputs)) {}

  /// Uses another optimizer of the same algorithm and states, which outlives this or the next call.
  void set_optimizer(optim::Optimizer const& optimizer) { rule_->set_optimizer(optimizer); }

  StateTable const& states() const { return states_; }
  /// First fp32 value of a state of @p unit that this rank keeps.
  float* values(std::size_t state, UnitIndex unit) const {
    return static_cast<float*>(states_.region(state, unit));
  }
  /// The fp32 shards that checkpoints read and write.
  StateShards& shards() { return shards_; }
  StateShards const& shards() const { return shards_; }

  /// The segments of a unit that one step updates completely.
  optim::Segments const& segments(UnitIndex unit) const {
    return segments_[schedule_.of(unit).front().index];
  }
  /// This rank's gradient shards, padding (zeros) included.
  std::vector<kernels::GradientRun> gradient_shards() const;
  /// The norm and the overflow check of the reduced gradients. Collective.
  void compute_norm(NormAndOverflow& decision, kernels::GradientLimits const& limits) const;

  /// Enqueues the sums of all parameters that the updates need, added over the ranks. No effect for
  /// rules without sums; otherwise collective. @param host for sums by the host
  void sum(optim::StepControl const& device, optim::StepControl const& host) const;
  /// Enqueues the update of @p unit. Later work of the compute queue reads the new weights.
  void update(UnitIndex unit, optim::StepControl const& control) const;
  /// Starts the update of all units by the host, while later work of the compute queue continues
  /// with the weights as they are. Their gradients stay until they are read.
  void start_updates(optim::StepControl const& control) const;
  /// Later work of the compute queue reads the weights of the update that was started. Called for
  /// all units in order.
  void finish_update(UnitIndex unit) const { host_->run(unit, {}); }
  /// The states change outside an update.
  void forget_hashes() const {
    if (hashes_) hashes_->forget();
  }
  /// Compares the states of @p unit with their hashes, as its next update does.
  void compare_hashes(UnitIndex unit) const;
  /// Returns the first unit of which a comparison since the last call has found a change; none
  /// without hashes.
  std::optional<UnitIndex> changed() const {
    return hashes_ ? hashes_->changed(host_ ? host_->queue() : context_.compute) : std::nullopt;
  }
  /// Blocks until the host has ended its updates.
  void wait_for_host() const {
    if (host_) host_->wait();
  }

  /// Rounds this rank's shard of the master weights to the working weights, on the compute queue.
  void round_weights(UnitIndex unit) const;
  /// All-gathers the states that every rank holds in full: all of a replicated optimizer, and those
  /// that are not element-wise. Collective, blocks the host.
  enum class What { master_weights, all_states };
  void replicate(What what) const;

 private:
  /// All that the schedule and the storages are made from.
  struct Setup {
    std::vector<StateLayout> layouts;
    StatePlacement placement;
    TiledUnits tiled;
  };
  static Setup setup(StoreContext const& context, StageRules const& rules, Inputs const& inputs);
  OptimizerState(StoreContext const& context, StageRules const& rules, Inputs const& inputs,
                 Setup setup);
  SegmentSources sources() const;
  void sum_unit(int round, UnitIndex unit, optim::StepControl const& control) const;
  void run_step(memory::Queue& queue, UpdateStep const& step,
                optim::StepControl const& control) const;
  HostUpdate::Work work_of_host(optim::StepControl const& control) const;
  /// A rule with sums has all its steps on one queue, see validate_update().
  UpdateQueue sum_queue() const { return schedule_.steps().front().queue; }
  std::optional<comm::Pending> gather_values(std::size_t state, memory::Event const& after) const;
  memory::Queue& queue_of(UpdateQueue queue) const {
    return queue == UpdateQueue::worker ? host_->queue() : context_.compute;
  }

  StoreContext context_;
  StageRules rules_;
  WeightStore& weights_;
  GradientFlow& gradients_;
  HostUpdate* host_;               ///< null: nothing is offloaded
  HostGradients* host_gradients_;  ///< gradients of the offloaded units; null: nothing is offloaded
  UpdateSchedule schedule_;
  StateTable states_;
  StateShards shards_;
  std::unique_ptr<UpdateRule> rule_;
  std::vector<optim::Segments> segments_;  ///< segments of each step
  std::unique_ptr<StateHashes> hashes_;    ///< null: updates compare nothing
};

}  // namespace tessera::zero::detail
