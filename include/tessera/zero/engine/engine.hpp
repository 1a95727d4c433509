#pragma once
/// The ZeRO engine: holds weights, gradients, master weights and optimizer state as the stage says,
/// moves them between ranks while the model computes, and applies the optimizer step. Rajbhandari
/// et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC'20; gradient
/// buckets and overlap: docs/explanation/zero.md.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/compose/mesh.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/optim/loss_scaler.hpp"
#include "tessera/zero/layout/engine_config.hpp"
#include "tessera/zero/layout/offload_config.hpp"
#include "tessera/zero/layout/partition_plan.hpp"
#include "tessera/zero/layout/prefetch_report.hpp"
#include "tessera/zero/layout/state_view.hpp"
#include "tessera/zero/layout/weight_fill.hpp"
#include "tessera/zero/optimizer/state_placement.hpp"
#include "tessera/zero/optimizer/step_values.hpp"

namespace tessera::zero {

struct StepResult {
  double grad_norm = 0.0;   ///< global, unscaled, before clipping
  double loss_scale = 1.0;  ///< that produced these gradients
  bool skipped = false;     ///< overflow: no weight changed, the schedule does not advance
  /// Of an optimizer that compresses its communication: "warm-up", "compressed"; else empty. In
  /// compressed steps grad_norm is the root mean square of the norms of the ranks' gradients.
  char const* phase = "";
  StepSums sums = {};
};

/// Memory of this rank by purpose in bytes, with the formula of the stage.
struct MemoryReport {
  std::size_t weights = 0, gradients = 0, master_weights = 0, optimizer_state = 0, buffers = 0;
  std::size_t formula = 0;  ///< of the first four, ZeRO paper section 3 and 5, without padding
  std::size_t swapped = 0;  ///< on a drive, not in memory; the formula leaves it out
  std::size_t swapped_weights = 0;  ///< the part of `swapped` that is weights
  std::optional<SwapUse> swap;      ///< with swap files
  /// With offload from a device: bytes of all these in host memory, the parts of it that are pinned
  /// and weights, and the share of the elements that the host updates.
  std::size_t offloaded = 0, pinned = 0, offloaded_weights = 0;
  double offloaded_share = 0.0;
};

class Engine : public memory::ParamProvider {
 public:
  /// Of the parameters that train, as trained_parameters() lists them. Over the ranks of a shard
  /// group; this rank's partition is that of PartitionPlan::rank_of().
  virtual PartitionPlan const& plan() const = 0;
  /// Of the others, as frozen_parameters() lists them. Only their working weights exist, at stage 3
  /// partitioned.
  virtual PartitionPlan const& frozen_plan() const = 0;
  /// This rank's shard of the frozen parameters of @p unit. Blocks the host.
  virtual std::vector<float> frozen_shard(UnitIndex unit) const = 0;
  virtual EngineConfig const& config() const = 0;

  /// Sets every owned element, of frozen parameters too, through @p fill(unit, index of the
  /// parameter in the model's unit, first element, count, out), then updates the working weights on
  /// all ranks. Collective. Elements are fp32 values; 16-bit weights
  /// are rounded from them.
  using Fill = WeightFill;
  virtual void initialize(Fill const& fill) = 0;

  /// From the next step on; the optimizer has hyperparameters beta1 and beta2. A schedule calls it
  /// before each step, so that checkpoints need not store it.
  virtual void set_betas(double beta1, double beta2) = 0;
  /// Training: an engine for inference refuses these and the state. begin_step, then per micro-step
  /// begin_micro_step + model passes, then finish_step.
  virtual void begin_step() = 0;
  virtual void begin_micro_step(int index, int count) = 0;
  /// The same on a rank without samples in this micro-step, while others have some: it computes
  /// those of another one, and its gradients do not count.
  virtual void begin_empty_micro_step(int index, int count) = 0;
  /// Reduces the gradients, computes norm and overflow, clips, updates, and all-gathers the updated
  /// weights; at stage 3 those that a pass in the order of the last one reads first. On a device
  /// the host waits once, for the overflow flag, after it has enqueued the update; on overflow that
  /// update changes nothing.
  /// @param values of this rank, see StepResult::sums
  virtual StepResult finish_step(double learning_rate, StepValues const& values) = 0;
  StepResult finish_step(double learning_rate) { return finish_step(learning_rate, {}); }
  virtual double loss_scale() const = 0;
  /// What a model multiplies d(sum of token losses) / (predicted tokens of the global batch) by:
  /// the loss scale, and in fp16 the number of ranks, as DeepSpeed's gradients of a rank's own mean
  /// loss carry it before the reduction divides by it.
  virtual double gradient_scale() const = 0;

  /// This rank's shards of the master weights ("fp32") and of saved_states(). Collective with
  /// optimizers and gradients that keep errors: all ranks continue with equal ones. The views of
  /// states in codes are valid until the next finish_step().
  virtual std::vector<StateView> state() = 0;
  /// True when state is a snapshot: training does not change the views until the next call of
  /// state(). False when the views are the state itself.
  virtual bool state_is_snapshot() const = 0;
  /// Loads the state that the caller has written into the views of state(): updates the working
  /// weights and, in stage 0, the replicas. Collective.
  virtual void load_state(std::int64_t optimizer_steps, optim::LossScalerState const& scaler) = 0;
  virtual std::int64_t optimizer_steps() const = 0;  ///< applied (not skipped) steps, Adam's t
  virtual optim::LossScalerState scaler_state() const = 0;

  virtual MemoryReport memory() const = 0;
  /// With weights in host memory of a device or on a drive, once a pass has been measured. Of
  /// parameters that train and parameters that do not, those whose transfers take longer.
  virtual std::optional<PrefetchReport> prefetch() const { return {}; }
};

/// @param mesh of all ranks; outlives the engine. The ranks along axis shard share one copy of the
/// states, those along every other axis have copies, and gradients are summed over all ranks.
/// @param place called for each state, the master weights first; empty: every state is in the
/// memory space of @p compute and is updated there
std::unique_ptr<Engine> make_engine(EngineConfig const& config,
                                    std::vector<memory::UnitSpec> const& units, comm::Mesh& mesh,
                                    memory::Queue& compute, PlaceState const& place = {});
/// On the mesh of replicas and shard groups that @p config describes. @param comm all ranks
std::unique_ptr<Engine> make_engine(EngineConfig const& config,
                                    std::vector<memory::UnitSpec> const& units,
                                    comm::Collectives& comm, memory::Queue& compute,
                                    PlaceState const& place = {});

}  // namespace tessera::zero
