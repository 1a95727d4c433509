#pragma once
/// The ZeRO engine: holds weights, gradients, master weights and optimizer state as the stage says,
/// moves them between ranks while the model computes, and applies the optimizer step. Rajbhandari
/// et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC'20; gradient
/// buckets and overlap: docs/explanation/zero.md.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/mesh.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/optim/loss_scaler.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/zero/offload_config.hpp"
#include "tessera/zero/partition_plan.hpp"
#include "tessera/zero/state_view.hpp"

namespace tessera::zero {

/// What an engine is for. Inference needs weights only: no gradients, master weights and states.
enum class EngineUse { training, inference };

/// Gradients of stage 3 travel as int4 codes in two all-to-alls, inside nodes and between them
/// (ZeRO++ qgZ).
struct QuantizedGradients {
  int ranks_per_node = 1;  ///< consecutive ranks
  /// Each rank adds what its codes have lost to the gradients of the next step (LoCo).
  struct ErrorFeedback {
    double beta = 0.8;                ///< part of the old error that a step keeps
    std::int64_t reset_steps = 1024;  ///< steps after which errors start from zero
  };
  std::optional<ErrorFeedback> feedback;
};

enum class GradientDivision {
  after_reduction,  ///< by the predivide factor before, by the rest after (DeepSpeed's default)
  before_reduction  ///< prescale_gradients
};
enum class GradientAverage { mean, sum };  ///< gradient_allreduce_op

/// How gradients of several ranks become one. DeepSpeed's stages 1 to 3 divide before a
/// reduce-scatter; an all-reduce (stage 0, reduce_scatter false) divides as configured.
struct GradientReduction {
  GradientAverage average = GradientAverage::mean;
  GradientDivision division = GradientDivision::after_reduction;
  double predivide_factor = 1.0;
  bool reduce_scatter = true;
  bool operator==(GradientReduction const&) const = default;
};

/// ranks: sums over micro-steps one after the other, and over ranks as comm::Collectives forms
/// them. tree: one binary tree over ranks and micro-steps, in fp32, and an exact gradient norm, so
/// that 1, 2, 4, ... ranks with the same micro-batches get the same bits at every stage. Stages 0
/// and 1 sum the micro-batches of a rank first, and so does EngineConfig::reduce_once; stages 2 and
/// 3 those of a micro-step.
enum class SumOrder { ranks, tree };

struct EngineConfig {
  EngineUse use = EngineUse::training;
  int stage = 0;  ///< 0..3
  /// Ranks that share one copy of the states (MiCS, HSDP), stages 1 to 3; 0: those of the mesh.
  int shard_group_size = 0;
  Dtype dtype = Dtype::fp32;                ///< of weights and activations
  Dtype communication_dtype = Dtype::fp32;  ///< of gradients on the wire
  Dtype accumulation_dtype =
      Dtype::fp32;  ///< of accumulated gradients when a step has several micro-steps
  /// Of the weights that are updated. `dtype`: the working weights are updated, and gradients are
  /// kept in it; stages 1 to 3, element-wise optimizers.
  Dtype master_dtype = Dtype::fp32;
  int accumulation_steps = 1;
  GradientReduction reduction;
  SumOrder sum_order = SumOrder::ranks;
  /// Stages 2 and 3 with several micro-steps: each rank keeps complete gradients, sums them over
  /// its micro-steps, and the last one reduces them, as at stage 1. Else shards are reduced in
  /// every micro-step.
  bool reduce_once = false;
  bool overlap_comm = true;  ///< reduce while backward continues; false: wait for each bucket
  std::int64_t reduce_bucket_size = 500'000'000;  ///< most elements of one reduction
  std::int64_t allgather_bucket_size = 500'000'000;
  std::int64_t prefetch_bucket_size = 50'000'000;  ///< stage 3: elements to prefetch
  std::int64_t max_live_parameters = 1'000'000'000;
  double max_grad_norm = 0.0;  ///< global-norm clipping; 0: off
  optim::OptimizerSpec optimizer = optim::make_spec("AdamW");
  optim::LossScalerConfig loss_scaler;
  bool skip_on_nonfinite = true;  ///< fp16 always; bf16 with check_grad_overflow
  /// Consecutive ranks that keep a second copy of the gathered weights, from which later gathers
  /// of the step come (ZeRO++ hpZ); stage 3; 1: none.
  int secondary_group_size = 1;
  int weight_code_bits = 0;  ///< 8 or 4: all-gathers of stage 3 move codes (ZeRO++ qwZ); 0: values
  std::optional<QuantizedGradients> quantized_gradients;  ///< stage 3
  std::optional<OptimizerSwap> optimizer_swap;            ///< stages 1 to 3
  std::optional<WeightSwap> weight_swap;                  ///< stage 3
  std::optional<WeightOffload> weight_offload;            ///< stage 3; no effect with weight_swap
  /// Stages 1 to 3. With optimizer_swap tiles and buffers are those of the swap.
  std::optional<OptimizerOffload> optimizer_offload;
};

/// Values whose sums over all ranks a step forms in the all-reduce of its gradient norm, so that
/// they cost no message of their own.
struct StepValues {
  static constexpr std::size_t count = 10;
  /// This rank's addends of one sum; with SumOrder::tree the sum is exact.
  std::vector<double> addends;
  std::array<std::int64_t, count> counts{};  ///< each summed; the sums are below 2^53
};
struct StepSums {
  double addends = 0.0;
  std::array<std::int64_t, StepValues::count> counts{};
};

/// Gradients of @p config move in every micro-step, not only in the last one.
inline bool reduces_micro_steps(EngineConfig const& config) {
  return config.stage >= 2 && !(config.reduce_once && config.accumulation_steps > 1);
}

struct StepResult {
  double grad_norm = 0.0;   ///< global, unscaled, before clipping
  double loss_scale = 1.0;  ///< that produced these gradients
  bool skipped = false;     ///< overflow: no weight changed, the schedule does not advance
  /// Of an optimizer that compresses its communication: "warm-up", "compressed"; else empty. In
  /// compressed steps grad_norm is the root mean square of the norms of the ranks' gradients.
  char const* phase = "";
  StepSums sums = {};
};

/// What the swap files of a run really use.
struct SwapUse {
  memory::SwapMethod method;
  bool is_direct = true;  ///< all of them bypass the page cache
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

/// How far ahead of the computation the weights of stage 3 are transferred, where they are in host
/// memory or on a drive: chosen from the times of one pass, within the limits of the buffers. The
/// depths are the same on all ranks, the times are those of this rank.
struct PrefetchReport {
  std::int64_t units = 0, max_units = 0;            ///< copied and gathered ahead
  std::int64_t read_units = 0, max_read_units = 0;  ///< read ahead from a drive; 0: there is none
  double transfer_seconds = 0.0;                    ///< of copies and gathers, one after the other
  double read_seconds = 0.0;                        ///< of reads
  double compute_seconds = 0.0;                     ///< between the transfers that it waited for
  double waiting_seconds = 0.0;                     ///< that no depth within the limits hides
  double seconds() const { return transfer_seconds + read_seconds; }
  bool operator==(PrefetchReport const&) const = default;
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
  using Fill = std::function<void(UnitIndex unit, int parameter, std::int64_t first,
                                  std::int64_t numel, float* out)>;
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
  /// weights; at stage 3 those that an announced pass reads first. On a device the host waits once,
  /// for the overflow flag, after it has enqueued the update; on overflow that update changes
  /// nothing.
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
  /// Rows of a tied embedding whose gradients the last step reduced at the end, and the others
  /// before; 0: all at the end. None without such an embedding or other ranks.
  virtual std::optional<std::int64_t> late_rows() const { return {}; }
  /// Rows of an embedding that were gathered for a lookup without the rest of it, the last time
  /// that it could be so; 0: they were too many. None without announced lookups or other ranks.
  virtual std::optional<std::int64_t> lookup_rows() const { return {}; }
};

/// Memory space of a state, and the queue that updates and copies it. The queue outlives the
/// engine.
struct StatePlacement {
  memory::MemorySpace space = memory::MemorySpace::host;
  memory::Queue* queue = nullptr;
};
using PlaceState = std::function<StatePlacement(optim::StateSpec const& state)>;

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
