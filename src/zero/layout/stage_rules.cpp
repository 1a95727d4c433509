#include "layout/stage_rules.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tessera/core/error.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::zero::detail {
namespace {

/// A configuration that contradicts itself is an error of the program that made it.
template <class... What>
void require(bool holds, What const&... what) {
  TESSERA_VALIDATE(holds, InternalError, what...);
}

void validate_values(EngineConfig const& c) {
  for (Dtype const dtype : {c.dtype, c.communication_dtype})
    require(dtype == Dtype::fp32 || dtype == Dtype::fp16 || dtype == Dtype::bf16, "training in ",
            name_of(dtype));
  require(c.accumulation_dtype == Dtype::fp32 || c.accumulation_dtype == c.dtype, "weights of ",
          name_of(c.dtype), " with gradients accumulated as ", name_of(c.accumulation_dtype));
  require(c.accumulation_steps > 0 && c.reduce_bucket_size > 0 && c.allgather_bucket_size > 0,
          c.accumulation_steps, " micro-steps, reductions of ", c.reduce_bucket_size,
          " and all-gathers of ", c.allgather_bucket_size, " elements; all must be positive");
  double const scale = c.loss_scaler.dynamic ? 1.0 : c.loss_scaler.static_scale,
               divisor = c.reduction.predivide_factor;
  require(c.max_grad_norm >= 0.0 && scale > 0.0 && divisor > 0.0 &&
              std::isfinite(c.max_grad_norm + scale + divisor),
          "gradients clipped to the norm ", c.max_grad_norm, ", scaled by ", scale, ", divided by ",
          divisor);
}

bool has_half_states(optim::OptimizerSpec const& optimizer) {
  return std::ranges::any_of(optimizer.states, [](auto const& state) {
    return state.is_plain() && state.dtype != Dtype::fp32;
  });
}

void validate_optimizer(EngineConfig const& c, ShardedStates const& states) {
  (void)optim::make_optimizer(c.optimizer);  // checks its values
  require(stage_of(c.partition) == 0 || !optim::is_compressing(c.optimizer), "optimizer ",
          c.optimizer.algorithm, " above ZeRO stage 0; every rank keeps the complete momentum");
  require(states.master_dtype == Dtype::fp32 || states.master_dtype == c.dtype,
          name_of(states.master_dtype), " master weights of ", name_of(c.dtype), " weights");
  require((states.master_dtype == Dtype::fp32 && !has_half_states(c.optimizer)) ||
              optim::is_elementwise(c.optimizer),
          "16-bit states or master weights with optimizer ", c.optimizer.algorithm,
          ", whose update is not element-wise");
}

Dtype kept_gradient_dtype(EngineConfig const& c, bool sharded) {
  if (c.sum_order == SumOrder::tree) return Dtype::fp32;
  if (c.accumulation_steps > 1) return c.accumulation_dtype;
  if (settings<ShardedStates>(c).master_dtype != Dtype::fp32) return c.dtype;
  // A shard is written by the reduction, whose sums are fp32: a wire of another dtype leaves
  // nothing to gain from rounding them.
  return sharded && c.communication_dtype != c.dtype ? Dtype::fp32 : c.dtype;
}

/// fp16 gradients are divided where DeepSpeed divides them, because that decides which of them
/// overflow; under autocast those of activations carry a dynamic loss scale. Other dtypes have the
/// range for every place: they carry the average from the start.
Averaging averaging_of(EngineConfig const& c, int ranks, int copies) {
  auto const& r = c.reduction;
  int const stage = stage_of(c.partition);
  double const n = static_cast<double>(ranks) * copies;
  bool const averages = r.average == GradientAverage::mean;
  bool const configured = r.predivide_factor != 1.0 || r.division != GradientDivision{};
  Averaging out;
  if (c.dtype == Dtype::fp16 || c.loss_scaler.dynamic || (averages && configured)) out.carried = n;
  if (averages && out.carried != 1.0) {
    bool const first = stage == 3 || (stage > 0 && r.reduce_scatter) ||
                       r.division == GradientDivision::before_reduction;
    out.before = 1.0 / (first ? ranks : r.predivide_factor);
    if (first) out.across = 1.0 / copies;
  }
  out.left = out.carried * out.before * out.across / (averages ? 1.0 : n);
  if (averages && stage == 0 && c.communication_dtype != kept_gradient_dtype(c, false)) {
    out.after = 1.0 / out.left;
    out.left = 1.0;
  }
  return out;
}

void validate_states(EngineConfig const& c, ShardedStates const& states) {
  auto const o = states.optimizer_offload.value_or(OptimizerOffload{});
  require(states.shard_group_size >= 0, "shard groups of ", states.shard_group_size, " ranks");
  require(o.tile_numel > 0 && o.buffer_count > 0 && o.delay_from >= 0 && o.ratio >= 0.0 &&
              o.ratio <= 1.0,
          "offloaded states: ", o.buffer_count, " buffers of ", o.tile_numel,
          " elements, a ratio of ", o.ratio, ", a delay from step ", o.delay_from);
  require(o.ratio == 1.0 || std::ranges::all_of(c.optimizer.states, &optim::StateSpec::is_plain),
          "a part of the elements on the host with ", c.optimizer.algorithm,
          ", whose states are not element-wise fp32 values");
  require(o.delay_from == 0 || o.ratio == 1.0, "the delayed update of a part of the elements");
  require(o.delay_from == 0 || !states.optimizer_swap, "the delayed update of states on a drive");
}

void validate_weights(ShardedWeights const& w) {
  int const bits = w.quantized_weight_bits, group = w.secondary_group_size;
  require(w.prefetch_bucket_size >= 0 && w.max_live_parameters >= 0, "gathers of ",
          w.prefetch_bucket_size, " elements ahead, ", w.max_live_parameters, " at a time");
  require(group >= 1 && (bits == 0 || bits == 4 || bits == 8), "secondary shards over ", group,
          " ranks, weights quantized to ", bits, " bits");
  require(group == 1 || w.shard_group_size == 0, "secondary shards with shard groups");
  if (!w.quantized_gradients) return;
  auto const& gradients = *w.quantized_gradients;
  auto const feedback = gradients.feedback.value_or(QuantizedGradients::ErrorFeedback{});
  require(w.shard_group_size == 0, "quantized gradients with shard groups");
  require(!w.reduce_once, "quantized gradients that are reduced once per step");
  require(gradients.ranks_per_node > 0 && feedback.beta >= 0.0 && feedback.beta <= 1.0 &&
              feedback.reset_steps > 0,
          "quantized gradients: ", gradients.ranks_per_node, " ranks per node, ", feedback.beta,
          " of an error kept for ", feedback.reset_steps, " steps");
}

void validate_tree(EngineConfig const& c, int ranks, memory::MemorySpace space) {
  auto const& weights = settings<ShardedWeights>(c);
  auto const& states = settings<ShardedStates>(c);
  require(std::has_single_bit(static_cast<unsigned>(ranks)) &&
              std::has_single_bit(static_cast<unsigned>(c.accumulation_steps)),
          "a tree over ", ranks, " ranks and ", c.accumulation_steps, " micro-steps");
  require(space == memory::MemorySpace::host, "NCCL and devices form sums in another order");
  require(optim::is_elementwise(c.optimizer), "sums in a tree with optimizer ",
          c.optimizer.algorithm, ", whose update is not element-wise");
  require(states.master_dtype == Dtype::fp32 && c.accumulation_dtype == Dtype::fp32 &&
              c.communication_dtype == Dtype::fp32,
          "sums in a tree that are not fp32");
  require(c.reduction.average == GradientAverage::mean, "sums that grow with the ranks");
  require(weights.quantized_weight_bits == 0 && !weights.quantized_gradients,
          "quantized collectives round by shard");
  require(states.shard_group_size == 0, "shard groups sum in another order");
}

}  // namespace

StageRules rules_for(EngineConfig const& config, int ranks, memory::MemorySpace space, int copies) {
  auto const& states = settings<ShardedStates>(config);
  auto const& weights = settings<ShardedWeights>(config);
  int const stage = stage_of(config.partition);
  StageRules rules;
  rules.reduces = ranks > 1;
  rules.shards_optimizer = stage >= 1 && rules.reduces;
  rules.shards_gradients = reduces_micro_steps(config) && rules.reduces;
  bool const on_device = space == memory::MemorySpace::device;
  rules.shards_weights =
      (stage == 3 && rules.reduces) || weights.weight_swap || (weights.weight_offload && on_device);
  rules.master_dtype = states.master_dtype;
  rules.gradient_dtype = kept_gradient_dtype(config, rules.shards_gradients);
  if (rules.reduces && config.sum_order != SumOrder::tree)
    rules.averaging = averaging_of(config, ranks, copies);
  rules.offloads_optimizer = on_device && (states.optimizer_offload || states.optimizer_swap);
  rules.offloads_gradients = rules.offloads_optimizer && reduces_micro_steps(config);
  rules.copies_weights =
      on_device && !rules.shards_weights && size_of(config.product_dtype) < size_of(config.dtype);
  rules.separate_master = config.dtype != rules.master_dtype || rules.offloads_optimizer;
  return rules;
}

void validate_training(EngineConfig const& c, int ranks, memory::MemorySpace space) {
  if (c.sum_order == SumOrder::tree) validate_tree(c, ranks, space);
  auto const& states = settings<ShardedStates>(c);
  auto const o = states.optimizer_offload.value_or(OptimizerOffload{});
  bool const on_device = space == memory::MemorySpace::device;
  require(!on_device || (o.ratio == 1.0 && o.delay_from == 0) || c.optimizer.has_codes() ||
              optim::is_elementwise(c.optimizer),
          "the host updates a part of the elements, or with a delay, with ", c.optimizer.algorithm,
          ", whose update needs complete parameters of all ranks");
  if (!states.optimizer_swap) return;
  require(!has_half_states(c.optimizer), "a drive for ", c.optimizer.algorithm,
          ": its states of 16 bits stay in memory");
  require(!on_device || states.master_dtype == Dtype::fp32, "a drive for ",
          name_of(states.master_dtype), " master weights of a model on a device");
  require(on_device || c.dtype != states.master_dtype ||
              std::ranges::any_of(c.optimizer.states, &optim::StateSpec::is_plain),
          "a drive for ", c.optimizer.algorithm, " and fp32 weights: no state goes to a drive");
}

void validate(EngineConfig const& config) {
  auto const& states = settings<ShardedStates>(config);
  validate_values(config);
  validate_optimizer(config, states);
  validate_states(config, states);
  validate_weights(settings<ShardedWeights>(config));
}

}  // namespace tessera::zero::detail
