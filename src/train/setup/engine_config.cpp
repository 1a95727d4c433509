#include "tessera/train/setup/engine_config.hpp"

#include <algorithm>
#include <sstream>

#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

memory::SwapOptions swap_options(config::Offload const& o, std::string const& directories) {
  memory::SwapOptions out;
  std::istringstream names(directories);
  for (std::string name; std::getline(names, name, ':');) out.directories.emplace_back(name);
  out.block_size = static_cast<std::size_t>(o.block_size);
  out.queue_depth = static_cast<int>(o.queue_depth);
  out.parallelism = static_cast<int>(o.intra_op_parallelism);
  if (o.single_submit) out.submit = memory::SwapOptions::Submit::single;
  if (!o.overlap_events) out.events = memory::SwapOptions::Events::wait;
  return out;
}

/// Reductions and all-gathers of fewer elements cost latency and save no memory: the buffer on the
/// wire is that of the complete unit. `"auto"` files have reduce_bucket_size = hidden_size^2, a
/// twelfth of a transformer block.
constexpr std::int64_t least_bucket = std::int64_t{8} << 20;

zero::QuantizedGradients quantized_gradients(config::ResolvedConfig const& c) {
  zero::QuantizedGradients out{.ranks_per_node = static_cast<int>(c.gradient_node_size),
                               .feedback = {}};
  if (c.error_feedback)
    out.feedback = {.beta = c.error_feedback->beta,
                    .reset_steps = static_cast<std::int64_t>(c.error_feedback->reset_steps)};
  return out;
}

zero::SumOrder sum_order(config::ResolvedConfig const& c) {
  if (!c.reproducible_world) return zero::SumOrder::ranks;
  auto const given = c.origins.find("communication_dtype");
  bool const is_default =
      given == c.origins.end() || given->second == config::Origin::default_value;
  TESSERA_VALIDATE(is_default || c.communication_dtype == Dtype::fp32, ConfigError,
                   "communication_data_type is ", name_of(c.communication_dtype),
                   " with --reproducible world, whose sums are fp32; remove it or use fp32");
  return zero::SumOrder::tree;
}

}  // namespace

zero::EngineConfig engine_config(config::ResolvedConfig const& c) {
  zero::EngineConfig e;
  e.stage = static_cast<int>(c.stage);
  e.shard_group_size = static_cast<int>(c.shard_group_size);
  e.secondary_group_size = static_cast<int>(c.secondary_group_size);
  if (c.quantized_weights) e.weight_code_bits = 8;
  if (c.gradient_node_size > 0) e.quantized_gradients = quantized_gradients(c);
  e.dtype = c.dtype;
  e.communication_dtype = c.communication_dtype;
  e.accumulation_dtype = c.accumulation_dtype;
  e.accumulation_steps = static_cast<int>(c.accumulation_steps);
  e.reduction = {.average = c.gradient_allreduce_op == "sum" ? zero::GradientAverage::sum
                                                             : zero::GradientAverage::mean,
                 .division = c.prescale_gradients ? zero::GradientDivision::before_reduction
                                                  : zero::GradientDivision::after_reduction,
                 .predivide_factor = c.gradient_predivide_factor,
                 .reduce_scatter = c.reduce_scatter};
  e.sum_order = sum_order(c);
  e.reduce_once = c.reduce_once;
  // DeepSpeed's default below stage 3 is false; the results are the same
  e.overlap_comm = c.overlap_comm || !c.origins.contains("overlap_comm");
  e.reduce_bucket_size = std::max(c.reduce_bucket_size, least_bucket);
  e.allgather_bucket_size = std::max(c.allgather_bucket_size, least_bucket);
  e.prefetch_bucket_size = c.prefetch_bucket_size;
  e.max_live_parameters = c.max_live_parameters;
  e.max_grad_norm = c.max_grad_norm;
  e.optimizer = c.optimizer;
  e.master_dtype = c.master_dtype;
  e.optimizer.set_state_dtype(c.state_dtype);
  e.loss_scaler = {.dynamic = c.dynamic_loss_scale,
                   .static_scale = c.static_loss_scale,
                   .initial_scale_power = static_cast<int>(c.initial_scale_power),
                   .window = c.loss_scale_window,
                   // DeepSpeed's stage 0 has none
                   .hysteresis = c.stage == 0 ? 1 : static_cast<int>(c.hysteresis),
                   .consecutive_hysteresis = c.consecutive_hysteresis,
                   .min_scale = c.min_loss_scale,
                   .growth = c.loss_scale_growth};
  e.skip_on_nonfinite = c.skip_on_nonfinite;
  auto const& o = c.offload;
  if (o.optimizer != config::OffloadDevice::none && c.stage > 0)
    e.optimizer_offload = {
        .tile_numel = o.tile_numel,
        .buffer_count = static_cast<int>(o.buffer_count),
        .space = o.pin_memory ? memory::MemorySpace::pinned : memory::MemorySpace::host,
        .ratio = o.ratio,
        .delay_from = o.delay_from};
  if (o.optimizer == config::OffloadDevice::nvme)
    e.optimizer_swap = {swap_options(o, o.nvme_path), o.tile_numel,
                        static_cast<int>(o.buffer_count)};
  auto const weights =
      o.parameters_pin_memory ? memory::MemorySpace::pinned : memory::MemorySpace::host;
  if (o.parameters == config::OffloadDevice::nvme)
    e.weight_swap = {swap_options(o, o.parameters_nvme_path),
                     static_cast<int>(o.parameters_buffer_count), o.parameters_buffer_size,
                     o.max_in_cpu, weights};
  if (o.parameters == config::OffloadDevice::cpu && c.stage == 3) e.weight_offload = {weights};
  return e;
}

model::ModelOptions model_options(config::ResolvedConfig const& c) {
  model::ModelOptions options(c.dtype, c.product_dtype);
  options.fp8 = c.fp8;
  options.label_smoothing = c.label_smoothing;
  options.neftune_noise_alpha = c.neftune_noise_alpha;
  return options;
}

}  // namespace tessera::train
