#include "layout/stage_rules.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tessera/core/error.hpp"

namespace tessera::zero::detail {
namespace {

bool is_training_dtype(Dtype dtype) {
  return dtype == Dtype::fp32 || dtype == Dtype::fp16 || dtype == Dtype::bf16;
}

void validate_dtypes(EngineConfig const& c) {
  TESSERA_VALIDATE(is_training_dtype(c.dtype), ConfigError, "the training dtype is ",
                   name_of(c.dtype), "; use fp32, fp16 or bf16");
  TESSERA_VALIDATE(is_training_dtype(c.communication_dtype), ConfigError,
                   "communication_data_type is ", name_of(c.communication_dtype),
                   "; gradients can be sent as fp32, fp16 or bf16");
  TESSERA_VALIDATE(c.accumulation_dtype == Dtype::fp32 || c.accumulation_dtype == c.dtype,
                   ConfigError, "grad_accum_dtype is ", name_of(c.accumulation_dtype), " with ",
                   name_of(c.dtype), " weights; use fp32 or the dtype of the weights");
}

void validate_sizes(EngineConfig const& c) {
  TESSERA_VALIDATE(c.accumulation_steps >= 1, ConfigError, "gradient_accumulation_steps is ",
                   c.accumulation_steps, "; it must be at least 1");
  TESSERA_VALIDATE(c.reduce_bucket_size > 0, ConfigError, "reduce_bucket_size is ",
                   c.reduce_bucket_size,
                   " elements; it must be positive (500000000 is the default)");
  TESSERA_VALIDATE(c.allgather_bucket_size > 0, ConfigError, "allgather_bucket_size is ",
                   c.allgather_bucket_size,
                   " elements; it must be positive (500000000 is the default)");
  TESSERA_VALIDATE(c.prefetch_bucket_size >= 0, ConfigError, "stage3_prefetch_bucket_size is ",
                   c.prefetch_bucket_size, " elements; it must not be negative");
  TESSERA_VALIDATE(c.max_live_parameters >= 0, ConfigError, "stage3_max_live_parameters is ",
                   c.max_live_parameters, " elements; it must not be negative");
}

/// DeepSpeed knows 16-bit master weights at stages 1 to 3.
void validate_masters(EngineConfig const& c) {
  TESSERA_VALIDATE(c.master_dtype == c.dtype, ConfigError, "the master weights are ",
                   name_of(c.master_dtype), " and the weights ", name_of(c.dtype),
                   "; use fp32 master weights, or those of the dtype of the weights");
  TESSERA_VALIDATE(c.stage > 0, ConfigError, name_of(c.dtype),
                   " master weights at stage 0; use zero_optimization.stage 1, 2 or 3, or fp32 "
                   "master weights");
  TESSERA_VALIDATE(optim::is_elementwise(c.optimizer), ConfigError, name_of(c.dtype),
                   " master weights with optimizer ", c.optimizer.algorithm,
                   ", whose update needs fp32 values of complete parameters or 8-bit states; use "
                   "AdamW, SGD or Lion, or fp32 master weights");
}

void validate_optimizer(EngineConfig const& c) {
  TESSERA_VALIDATE(c.max_grad_norm >= 0.0 && std::isfinite(c.max_grad_norm), ConfigError,
                   "gradient_clipping is ", c.max_grad_norm,
                   "; use a positive norm, or 0 for none");
  (void)optim::make_optimizer(c.optimizer);  // checks its values
  TESSERA_VALIDATE(c.stage == 0 || !optim::is_compressing(c.optimizer), ConfigError, "optimizer ",
                   c.optimizer.algorithm, " at ZeRO stage ", c.stage,
                   ": 1-bit optimizers are not compatible with ZeRO, because every rank keeps the "
                   "momentum of all parameters; use zero_optimization.stage 0, or AdamW");
  if (c.master_dtype != Dtype::fp32) validate_masters(c);
  auto const& s = c.loss_scaler;
  TESSERA_VALIDATE(s.dynamic || (s.static_scale > 0.0 && std::isfinite(s.static_scale)),
                   ConfigError, "loss_scale is ", s.static_scale,
                   "; it must be positive, or 0 for a dynamic scale");
}

/// Stage 1 without reduce_scatter and stage 0 reduce as configured; DeepSpeed's other reductions
/// know only a division before them.
void validate_reduction(EngineConfig const& c) {
  auto const& r = c.reduction;
  TESSERA_VALIDATE(r.predivide_factor > 0.0 && std::isfinite(r.predivide_factor), ConfigError,
                   "gradient_predivide_factor is ", r.predivide_factor, "; it must be positive");
  bool const scatters = c.stage == 3 || (c.stage == 2 && r.reduce_scatter);
  bool const averages = r.average == GradientAverage::mean;
  TESSERA_VALIDATE(averages || c.stage < 3, ConfigError,
                   "gradient_allreduce_op is sum at stage 3, where gradients are averaged; use a "
                   "lower stage, or mean and a learning rate multiplied by the number of ranks");
  TESSERA_VALIDATE(!averages || !scatters || r.division == GradientDivision::after_reduction,
                   ConfigError, "prescale_gradients is true at stage ", c.stage,
                   ", whose reduce-scatter divides before it in any case; remove it");
  TESSERA_VALIDATE(!averages || !scatters || r.predivide_factor == 1.0, ConfigError,
                   "gradient_predivide_factor is ", r.predivide_factor, " at stage ", c.stage,
                   ", whose reduce-scatter divides by the number of ranks before it; remove it");
}

Dtype kept_gradient_dtype(EngineConfig const& c, bool sharded) {
  if (c.sum_order == SumOrder::tree) return Dtype::fp32;
  if (c.accumulation_steps > 1) return c.accumulation_dtype;
  if (c.master_dtype != Dtype::fp32) return c.dtype;
  // A shard is written by the reduction, whose sums are fp32: a wire of another dtype leaves
  // nothing to gain from rounding them.
  return sharded && c.communication_dtype != c.dtype ? Dtype::fp32 : c.dtype;
}

/// fp16 gradients are divided where DeepSpeed divides them, because that decides which of them
/// overflow; under autocast those of activations carry a dynamic loss scale. Other dtypes have the
/// range for every place: they carry the average from the start.
Averaging averaging_of(EngineConfig const& c, int ranks, int copies) {
  auto const& r = c.reduction;
  double const n = static_cast<double>(ranks) * copies;
  bool const averages = r.average == GradientAverage::mean;
  bool const configured = r.predivide_factor != 1.0 || r.division != GradientDivision{};
  Averaging out;
  if (c.dtype == Dtype::fp16 || c.loss_scaler.dynamic || (averages && configured)) out.carried = n;
  if (averages && out.carried != 1.0) {
    bool const first = c.stage == 3 || (c.stage > 0 && r.reduce_scatter) ||
                       r.division == GradientDivision::before_reduction;
    out.before = 1.0 / (first ? ranks : r.predivide_factor);
    if (first) out.across = 1.0 / copies;
  }
  out.left = out.carried * out.before * out.across / (averages ? 1.0 : n);
  if (averages && c.stage == 0 && c.communication_dtype != kept_gradient_dtype(c, false)) {
    out.after = 1.0 / out.left;
    out.left = 1.0;
  }
  return out;
}

void validate_offload(EngineConfig const& c) {
  if (!c.optimizer_offload) return;
  auto const& o = *c.optimizer_offload;
  TESSERA_VALIDATE(c.stage > 0, ConfigError, "offload_optimizer needs ZeRO stage 1, 2 or 3");
  TESSERA_VALIDATE(o.tile_numel > 0 && o.buffer_count > 0, ConfigError, "offload_optimizer has ",
                   o.buffer_count, " buffers of ", o.tile_numel,
                   " elements; both must be positive");
  TESSERA_VALIDATE(o.ratio >= 0.0 && o.ratio <= 1.0, ConfigError, "offload_optimizer.ratio is ",
                   o.ratio, "; use a number from 0 to 1");
  bool const is_elementwise =
      std::all_of(c.optimizer.states.begin(), c.optimizer.states.end(), [](auto const& state) {
        return state.extent == optim::Extent::elementwise &&
               state.encoding == optim::Encoding::values;
      });
  TESSERA_VALIDATE(o.ratio == 1.0 || is_elementwise, ConfigError, "offload_optimizer.ratio is ",
                   o.ratio, " with ", c.optimizer.algorithm,
                   ", whose states are not element-wise fp32 values; leave ratio out");
  TESSERA_VALIDATE(o.delay_from >= 0, ConfigError, "the delayed update begins at step ",
                   o.delay_from, "; use a step from 1 on, or 0 for none");
  TESSERA_VALIDATE(o.delay_from == 0 || o.ratio == 1.0, ConfigError,
                   "the delayed update with offload_optimizer.ratio ", o.ratio,
                   ": a part of the weights would have the update and the others not; leave ratio "
                   "or --delayed_update_from_step out");
  TESSERA_VALIDATE(
      o.delay_from == 0 || !c.optimizer_swap, ConfigError,
      "the delayed update with offload_optimizer.device nvme: it exists for device cpu; "
      "use that, or leave --delayed_update_from_step out");
}

void validate_quantized_gradients(EngineConfig const& c) {
  if (!c.quantized_gradients) return;
  TESSERA_VALIDATE(c.stage == 3 && c.shard_group_size == 0, ConfigError,
                   "quantized gradients are of ZeRO stage 3 without shard groups; the stage is ",
                   c.stage, ", shard groups have ", c.shard_group_size, " ranks");
  TESSERA_VALIDATE(c.quantized_gradients->ranks_per_node > 0, ConfigError,
                   "quantized gradients with ", c.quantized_gradients->ranks_per_node,
                   " ranks per node");
  auto const& feedback = c.quantized_gradients->feedback;
  TESSERA_VALIDATE(!feedback || (feedback->beta >= 0.0 && feedback->beta <= 1.0), ConfigError,
                   "err_beta is ", feedback ? feedback->beta : 0.0, "; use a number from 0 to 1");
  TESSERA_VALIDATE(!feedback || feedback->reset_steps > 0, ConfigError, "reset_T is ",
                   feedback ? feedback->reset_steps : 0, "; use a positive number of steps");
  TESSERA_VALIDATE(!c.reduce_once, ConfigError,
                   "--reduce_once with zero_quantized_gradients, whose codes are of the gradients "
                   "of a micro-step; use one of them");
}

}  // namespace

StageRules rules_for(EngineConfig const& config, int ranks, memory::MemorySpace space, int copies) {
  StageRules rules;
  rules.reduces = ranks > 1;
  rules.shards_optimizer = config.stage >= 1 && rules.reduces;
  rules.shards_gradients = reduces_micro_steps(config) && rules.reduces;
  bool const on_device = space == memory::MemorySpace::device;
  rules.shards_weights = config.stage >= 3 && (rules.reduces || config.weight_swap ||
                                               (config.weight_offload && on_device));
  rules.gradient_dtype = kept_gradient_dtype(config, rules.shards_gradients);
  if (rules.reduces && config.sum_order != SumOrder::tree)
    rules.averaging = averaging_of(config, ranks, copies);
  rules.offloads_optimizer = on_device && (config.optimizer_offload || config.optimizer_swap);
  rules.offloads_gradients = rules.offloads_optimizer && reduces_micro_steps(config);
  rules.separate_master = config.dtype != config.master_dtype || rules.offloads_optimizer;
  return rules;
}

void validate_sum_order(EngineConfig const& c, int ranks, memory::MemorySpace space) {
  if (c.sum_order != SumOrder::tree) return;
  auto const require = [](bool holds, auto const&... what) {
    TESSERA_VALIDATE(holds, ConfigError, "the same bits on any number of ranks: ", what...);
  };
  require(std::has_single_bit(static_cast<unsigned>(ranks)), ranks,
          " ranks do not divide a binary tree; use a power of two");
  require(std::has_single_bit(static_cast<unsigned>(c.accumulation_steps)),
          "gradient_accumulation_steps is ", c.accumulation_steps, "; use a power of two");
  require(space == memory::MemorySpace::host,
          "NCCL and devices form sums in another order; use the CPU");
  require(optim::is_elementwise(c.optimizer), "optimizer ", c.optimizer.algorithm,
          " sends signs, sums over parameters or has states in codes; use AdamW, SGD or Lion");
  require(c.master_dtype == Dtype::fp32 && c.accumulation_dtype == Dtype::fp32,
          "master weights and accumulated gradients must be fp32");
  require(c.reduction.average == GradientAverage::mean,
          "gradient_allreduce_op is sum, whose gradients grow with the ranks; use mean");
  require(c.weight_code_bits == 0 && !c.quantized_gradients,
          "quantized collectives round by shard; remove them");
  require(c.shard_group_size == 0, "shard groups sum in another order; remove them");
}

EngineConfig with_wire_of_sums(EngineConfig config) {
  if (config.sum_order == SumOrder::tree) config.communication_dtype = Dtype::fp32;
  return config;
}

void validate(EngineConfig const& config) {
  TESSERA_VALIDATE(config.stage >= 0 && config.stage <= 3, ConfigError,
                   "zero_optimization.stage is ", config.stage, "; use 0, 1, 2 or 3");
  validate_dtypes(config);
  validate_sizes(config);
  validate_optimizer(config);
  validate_offload(config);
  validate_reduction(config);
  TESSERA_VALIDATE(config.shard_group_size >= 0, ConfigError, "shard groups have ",
                   config.shard_group_size, " ranks; use at least 2, or 0 for all ranks");
  TESSERA_VALIDATE(config.shard_group_size == 0 || config.stage > 0, ConfigError,
                   "shard groups at ZeRO stage 0, where every rank holds all states; use stage 1, "
                   "2 or 3");
  TESSERA_VALIDATE(config.secondary_group_size >= 1, ConfigError, "secondary shards over ",
                   config.secondary_group_size, " ranks; use at least 2, or 1 for none");
  TESSERA_VALIDATE(config.secondary_group_size == 1 || config.stage == 3, ConfigError,
                   "secondary shards at ZeRO stage ", config.stage,
                   ", which gathers no weights; use stage 3");
  TESSERA_VALIDATE(config.secondary_group_size == 1 || config.shard_group_size == 0, ConfigError,
                   "secondary shards with shard groups, which gather within their ranks already; "
                   "use one of them");
  int const bits = config.weight_code_bits;
  TESSERA_VALIDATE(bits == 0 || bits == 4 || bits == 8, ConfigError, "weights as codes of ", bits,
                   " bits; use 8 or 4, or 0 for values");
  TESSERA_VALIDATE(bits == 0 || config.stage == 3, ConfigError, "quantized weights at ZeRO stage ",
                   config.stage, ", which gathers no weights for its passes; use stage 3");
  validate_quantized_gradients(config);
  bool const offloads_weights = config.weight_swap || config.weight_offload;
  TESSERA_VALIDATE(!offloads_weights || config.stage == 3, ConfigError,
                   "offload_param needs ZeRO stage 3; stage ", config.stage,
                   " keeps the weights on every rank");
}

}  // namespace tessera::zero::detail
