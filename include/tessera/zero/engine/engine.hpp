#pragma once
/// The ZeRO engine: holds weights, gradients, master weights and optimizer state as the stage says,
/// moves them between ranks while the model computes, and applies the optimizer step. Rajbhandari
/// et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC'20; gradient
/// buckets and overlap: docs/explanation/zero.md.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/comm/compose/mesh.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/optim/loss_scaler.hpp"
#include "tessera/zero/engine/weights.hpp"
#include "tessera/zero/layout/engine_config.hpp"
#include "tessera/zero/layout/state_view.hpp"
#include "tessera/zero/optimizer/step_values.hpp"

namespace tessera::zero {

/// What a step has computed, the same on all ranks.
struct StepResult {
  double grad_norm = 0.0;   ///< global, unscaled, before clipping
  double loss_scale = 1.0;  ///< that produced these gradients
  bool skipped = false;     ///< overflow: no weight changed, the schedule does not advance
  /// Phase of an optimizer that compresses its communication ("warm-up" or "compressed"); else
  /// empty. In compressed steps grad_norm is the root mean square of the norms of the ranks'
  /// gradients.
  char const* phase = "";
  StepSums sums = {};
};

/// What becomes of the gradients of a micro-step. A rank without samples, while others have some,
/// computes the samples of another rank, so that it takes part in the collectives, and discards
/// its gradients.
enum class MicroStepGradients { count, are_discarded };

/// Weights that train: begin_step(), then per micro-step begin_micro_step() and a pass of the
/// model, then finish_step().
class Engine : public Weights, public memory::ParamProvider {
 public:
  /// Sets the betas from the next step on; the optimizer has hyperparameters beta1 and beta2. A
  /// schedule calls it before each step, so that checkpoints need not store it.
  virtual void set_betas(double beta1, double beta2) = 0;
  /// A step that was begun and not finished is dropped: it has changed no state, except the errors
  /// of QuantizedGradients::ErrorFeedback.
  virtual void begin_step() = 0;
  /// @param index of @p count micro-steps of the step
  virtual void begin_micro_step(int index, int count, MicroStepGradients gradients) = 0;
  void begin_micro_step(int index, int count) {
    begin_micro_step(index, count, MicroStepGradients::count);
  }
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
  /// The first unit whose master weights or states on this rank are not those that the last update
  /// has left, or were not in an update since the last call; with EngineConfig::hash_states. While
  /// an update is delayed only those of updates are known. Blocks the host.
  virtual std::optional<memory::UnitIndex> changed_states() = 0;
  /// Loads the state that the caller has written into the views of state(): updates the working
  /// weights and, in stage 0, the replicas. Collective.
  virtual void load_state(std::int64_t optimizer_steps, optim::LossScalerState const& scaler) = 0;
  virtual std::int64_t optimizer_steps() const = 0;  ///< applied (not skipped) steps, Adam's t
  virtual optim::LossScalerState scaler_state() const = 0;
};

/// @param mesh of all ranks; outlives the engine. The ranks along axis shard share one copy of the
/// states, those along every other axis have copies, and gradients are summed over all ranks.
std::unique_ptr<Engine> make_engine(EngineConfig const& config,
                                    std::vector<memory::UnitSpec> const& units, comm::Mesh& mesh,
                                    memory::Queue& compute);
/// Makes an engine on the mesh of replicas and shard groups that @p config describes. @param comm
/// all ranks
std::unique_ptr<Engine> make_engine(EngineConfig const& config,
                                    std::vector<memory::UnitSpec> const& units,
                                    comm::Collectives& comm, memory::Queue& compute);

}  // namespace tessera::zero
