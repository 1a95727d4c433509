#pragma once
/// The ZeRO engine: holds weights, gradients, masters and optimizer state as the stage says, moves
/// them between ranks while the model computes, and applies the optimizer step. Rajbhandari et al.,
/// "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC'20; gradient buckets
/// and overlap: docs/explanation/zero.md.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/collectives.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/optim/loss_scaler.hpp"
#include "tessera/zero/partition_plan.hpp"

namespace tessera::zero {

struct EngineConfig {
  int stage = 0;                            ///< 0..3
  Dtype dtype = Dtype::fp32;                ///< of weights and activations
  Dtype communication_dtype = Dtype::fp32;  ///< of gradients on the wire
  Dtype accumulation_dtype =
      Dtype::fp32;  ///< of accumulated gradients when a step has several micro-steps
  int accumulation_steps = 1;
  bool overlap_comm = true;  ///< reduce while backward goes on; false: wait for each bucket
  std::int64_t reduce_bucket_size = 500'000'000;  ///< elements a reduction moves at most
  std::int64_t allgather_bucket_size = 500'000'000;
  std::int64_t prefetch_bucket_size = 50'000'000;  ///< stage 3: elements fetched ahead
  std::int64_t max_live_parameters = 1'000'000'000;
  double max_grad_norm = 0.0;  ///< global-norm clipping; 0: off
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.0;
  bool decay_groups = true;  ///< false: every parameter decays (a DeepSpeed "optimizer" section)
  bool adam_l2 = false;      ///< adam_w_mode: false
  bool bias_correction = true;
  optim::LossScalerConfig loss_scaler;
  bool skip_on_nonfinite = true;  ///< fp16 always; bf16 with check_grad_overflow
};

struct StepResult {
  double grad_norm = 0.0;   ///< global, unscaled, before clipping
  double loss_scale = 1.0;  ///< that produced these gradients
  bool skipped = false;     ///< overflow: no weight changed, the schedule does not advance
};

/// Memory by purpose of this rank, with the stage's formula beside it.
struct MemoryReport {
  std::size_t weights = 0, gradients = 0, masters = 0, optimizer_state = 0, buffers = 0;
  std::size_t formula =
      0;  ///< of the four model states, ZeRO paper section 3 and 5, without padding
};

class Engine : public memory::ParamProvider {
 public:
  virtual PartitionPlan const& plan() const = 0;
  virtual EngineConfig const& config() const = 0;

  /// Sets every owned element through @p fill(unit, parameter, first element, count, out), then
  /// brings the weights in place. Collective. Elements are fp32 values; 16-bit weights are rounded
  /// from them.
  using Fill = std::function<void(int unit, int parameter, std::int64_t first, std::int64_t numel,
                                  float* out)>;
  virtual void initialize(Fill const& fill) = 0;

  /// Training: begin_step, then per micro-step begin_micro_step + model passes, then finish_step.
  virtual void begin_step() = 0;
  virtual void begin_micro_step(int index, int count) = 0;
  /// Sums up, agrees on overflow, clips, updates, brings the new weights in place. On a device the
  /// host waits once, for the verdict, while the update that depends on it is under way; on
  /// overflow that update changes nothing.
  virtual StepResult finish_step(double learning_rate) = 0;
  virtual double loss_scale() const = 0;

  /// A rank's part of the persistent state, for checkpoints: fp32 views in partition order
  /// (plan().extents() says what is where). In stage 0 and with replicated state the view covers
  /// this rank's shard of it all the same.
  struct StateView {
    std::string name;  ///< "fp32", "exp_avg", "exp_avg_sq"
    /// Shard of unit u: plan().unit(u).shard_numel elements.
    std::vector<float*> unit_shards;
  };
  virtual std::vector<StateView> state() = 0;
  /// True when state() gives copies that training leaves alone until the next call (the state is on
  /// a device).
  virtual bool state_is_snapshot() const = 0;
  /// After a restore wrote into state(): brings weights (and replicas of the state in stage 0) in
  /// place. Collective.
  virtual void restored(std::int64_t optimizer_steps, optim::LossScalerState const& scaler) = 0;
  virtual std::int64_t optimizer_steps() const = 0;  ///< applied (not skipped) steps, the t of Adam
  virtual optim::LossScalerState scaler_state() const = 0;

  virtual MemoryReport memory() const = 0;
};

/// @param comm outlives the engine
std::unique_ptr<Engine> make_engine(EngineConfig const& config,
                                    std::vector<memory::UnitSpec> const& units,
                                    comm::Collectives& comm, memory::Queue& compute);

}  // namespace tessera::zero
