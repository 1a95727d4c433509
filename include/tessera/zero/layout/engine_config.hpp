#pragma once
/// What an engine is asked for: stage, dtypes, reduction, memory spaces, optimizer.

#include <cstdint>
#include <optional>

#include "tessera/core/dtype.hpp"
#include "tessera/optim/loss_scaler.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/zero/layout/offload_config.hpp"

namespace tessera::zero {

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

/// Gradients of @p config move in every micro-step, not only in the last one.
inline bool reduces_micro_steps(EngineConfig const& config) {
  return config.stage >= 2 && !(config.reduce_once && config.accumulation_steps > 1);
}

}  // namespace tessera::zero
