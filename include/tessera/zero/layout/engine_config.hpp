#pragma once
/// What an engine is asked for: partition of the model states, dtypes, reduction, optimizer.

#include <cstdint>
#include <optional>
#include <type_traits>
#include <variant>

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/optim/loss_scaler.hpp"
#include "tessera/optim/optimizer_spec.hpp"
#include "tessera/zero/layout/offload_config.hpp"

namespace tessera::zero {

/// Gradients travel quantized in two all-to-alls, inside nodes with 8 bits and between them with 4
/// (ZeRO++ qgZ).
struct QuantizedGradients {
  int ranks_per_node = 1;  ///< consecutive ranks
  /// Each rank adds what quantization has lost to the gradients of the next step (LoCo).
  struct ErrorFeedback {
    double beta = 0.8;                ///< part of the old error that a step keeps
    std::int64_t reset_steps = 1024;  ///< steps after which errors start from zero
  };
  std::optional<ErrorFeedback> feedback;
};

/// When gradients are divided by the number of ranks.
enum class GradientDivision {
  after_reduction,  ///< by the predivide factor before, by the rest after (DeepSpeed's default)
  before_reduction  ///< by the number of ranks
};
/// Whether the gradients of the ranks are averaged or summed.
enum class GradientAverage { mean, sum };  ///< over the ranks

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
/// and 1 sum the micro-batches of a rank first, and so does ShardedGradients::reduce_once; stages 2
/// and 3 those of a micro-step.
enum class SumOrder { ranks, tree };

/// ZeRO stage 0: every rank has all model states.
struct Replicated {};

/// ZeRO stage 1: a rank has the master weights and optimizer states of its shards.
struct ShardedStates {
  /// Ranks that share one copy of the states (MiCS, HSDP); 0: those of the mesh.
  int shard_group_size = 0;
  /// The dtype that the optimizer updates: fp32, or EngineConfig::dtype. Then the working weights
  /// are updated, gradients are kept in that dtype, and the optimizer is element-wise.
  Dtype master_dtype = Dtype::fp32;
  std::optional<OptimizerSwap> optimizer_swap;
  /// With optimizer_swap tiles and buffers are those of the swap.
  std::optional<OptimizerOffload> optimizer_offload;
};

/// ZeRO stage 2: a rank also has the gradients of its shards only.
struct ShardedGradients : ShardedStates {
  /// With several micro-steps each rank keeps complete gradients, sums them over its micro-steps,
  /// and the last one reduces them, as at stage 1. Else shards are reduced in every micro-step.
  bool reduce_once = false;
};

/// ZeRO stage 3: a rank also has the weights of its shards only, and gathers others for a pass.
struct ShardedWeights : ShardedGradients {
  std::int64_t prefetch_bucket_size = 50'000'000;  ///< elements to prefetch
  std::int64_t max_live_parameters = 1'000'000'000;
  /// Consecutive ranks that keep a second copy of the gathered weights, from which later gathers
  /// of the step come (ZeRO++ hpZ); 1: none.
  int secondary_group_size = 1;
  int quantized_weight_bits = 0;  ///< 8 or 4: of gathered weights (ZeRO++ qwZ); 0: not quantized
  std::optional<QuantizedGradients> quantized_gradients;
  std::optional<WeightSwap> weight_swap;
  std::optional<WeightOffload> weight_offload;  ///< no effect with weight_swap
};

/// The ZeRO stages 0 to 3.
using Partition = std::variant<Replicated, ShardedStates, ShardedGradients, ShardedWeights>;

inline int stage_of(Partition const& partition) { return static_cast<int>(partition.index()); }

/// The partition of ZeRO stage @p stage, with those of @p from that it has.
inline Partition partition_of(int stage, ShardedWeights const& from = {}) {
  TESSERA_VALIDATE(stage >= 0 && stage <= 3, InternalError, "ZeRO stage ", stage,
                   " does not exist; use 0, 1, 2 or 3");
  if (stage == 0) return Replicated{};
  if (stage == 1) return ShardedStates(from);
  if (stage == 2) return ShardedGradients(from);
  return from;
}

/// Frozen matrices of blocks are kept as codes, which become numbers for a lease (QLoRA): see
/// kernels::WeightCodes.
struct QuantizedBase {
  bool is_int8 = false;               ///< else NF4
  bool double_quantized = false;      ///< the scales of NF4 are codes, too
  bool transposed = false;            ///< the matrices are [inputs, outputs], as in GPT-2
  Dtype stored_dtype = Dtype::fp32;   ///< values are rounded to it before they become codes
  Dtype compute_dtype = Dtype::fp32;  ///< dtype of the numbers of a lease
};

/// What an engine keeps where, and how it computes a step.
struct EngineConfig {
  Partition partition;
  Dtype dtype = Dtype::fp32;  ///< dtype of weights and activations
  /// Dtype of matrix products. Where it is narrower than `dtype`, a device keeps a copy in it of
  /// complete weights (stages 0 to 2), converted once per update.
  Dtype product_dtype = Dtype::fp32;
  Dtype communication_dtype = Dtype::fp32;  ///< dtype of gradients on the wire
  Dtype accumulation_dtype = Dtype::fp32;   ///< dtype of gradients that are summed over micro-steps
  int accumulation_steps = 1;
  GradientReduction reduction;
  SumOrder sum_order = SumOrder::ranks;
  bool overlap_comm = true;  ///< reduce while backward continues; false: wait for each bucket
  std::int64_t reduce_bucket_size = 500'000'000;  ///< most elements of one reduction
  std::int64_t allgather_bucket_size = 500'000'000;
  double max_grad_norm = 0.0;  ///< global-norm clipping; 0: off
  optim::OptimizerSpec optimizer = optim::make_spec("AdamW");
  optim::LossScalerConfig loss_scaler;
  bool skip_on_nonfinite = true;  ///< fp16 always; bf16 where overflows are checked
  std::optional<QuantizedBase> quantized_base;
  bool hash_states = false;  ///< each update looks for what Engine::changed_states() tells
};

/// The settings of @p config as ShardedStates, ShardedGradients or ShardedWeights, which may be
/// changed unless @p config is const; null: the stage has none.
template <class Part, class Config>
auto* edit(Config& config) {
  using Found = std::conditional_t<std::is_const_v<Config>, Part const, Part>;
  auto const find = [](auto& has) -> Found* {
    if constexpr (std::is_convertible_v<decltype(&has), Found*>) return &has;
    return nullptr;
  };
  return std::visit(find, config.partition);
}
/// The settings of @p config; a stage without them has the defaults, which ask for nothing.
template <class Part>
Part const& settings(EngineConfig const& config) {
  static Part const none;
  auto const* const found = edit<Part>(config);
  return found ? *found : none;
}

/// Gradients of @p config move in every micro-step, not only in the last one.
inline bool reduces_micro_steps(EngineConfig const& config) {
  return stage_of(config.partition) >= 2 &&
         !(settings<ShardedGradients>(config).reduce_once && config.accumulation_steps > 1);
}

}  // namespace tessera::zero
