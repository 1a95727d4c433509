#include "tessera/train/setup/engine_config.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tessera/comm/nccl/nccl_use.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/words.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::train {
namespace {

memory::SwapOptions swap_options(config::Offload const& o, std::string const& directories) {
  memory::SwapOptions out;
  for (auto const& name : split(directories, ':'))
    if (!name.empty()) out.directories.emplace_back(name);
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
/// A unit is one operation of NCCL, in place. The shards of a part of it are strided, so NCCL would
/// need packed copies; and each operation starts a thread (NCCL 2.28, src/group.cc, 30-60 us).
constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

zero::QuantizedGradients quantized_gradients(config::ResolvedConfig const& c) {
  zero::QuantizedGradients out{.ranks_per_node = static_cast<int>(c.gradient_node_size),
                               .feedback = {}};
  if (c.error_feedback)
    out.feedback = {.beta = c.error_feedback->beta,
                    .reset_steps = static_cast<std::int64_t>(c.error_feedback->reset_steps)};
  return out;
}

memory::MemorySpace host_space(bool pins) {
  return pins ? memory::MemorySpace::pinned : memory::MemorySpace::host;
}

/// What the stage does not have is left out.
zero::Partition partition(config::ResolvedConfig const& c) {
  zero::ShardedWeights out;
  out.shard_group_size = static_cast<int>(c.shard_group_size);
  out.master_dtype = c.master_dtype;
  out.reduce_once = c.reduce_once;
  out.prefetch_bucket_size = c.prefetch_bucket_size;
  out.max_live_parameters = c.max_live_parameters;
  out.secondary_group_size = static_cast<int>(c.secondary_group_size);
  if (c.quantized_weights) out.quantized_weight_bits = 8;
  if (c.gradient_node_size > 0) out.quantized_gradients = quantized_gradients(c);
  auto const& o = c.offload;
  auto const buffers = static_cast<int>(o.buffer_count);
  if (o.optimizer != config::OffloadDevice::none)
    out.optimizer_offload = {.tile_numel = o.tile_numel,
                             .buffer_count = buffers,
                             .space = host_space(o.pin_memory),
                             .ratio = o.ratio,
                             .delay_from = o.delay_from};
  if (o.optimizer == config::OffloadDevice::nvme)
    out.optimizer_swap = {swap_options(o, o.nvme_path), o.tile_numel, buffers};
  auto const weights = host_space(o.parameters_pin_memory);
  if (o.parameters == config::OffloadDevice::nvme)
    out.weight_swap = {swap_options(o, o.parameters_nvme_path),
                       static_cast<int>(o.parameters_buffer_count), o.parameters_buffer_size,
                       o.max_in_cpu, weights};
  if (o.parameters == config::OffloadDevice::cpu) out.weight_offload = {weights};
  return zero::partition_of(static_cast<int>(c.stage), out);
}

std::optional<zero::QuantizedBase> quantized_base(config::ResolvedConfig const& c,
                                                  bool transposed) {
  if (!c.quantizes_base()) return std::nullopt;
  auto const& wanted = c.bnb_4bit_compute_dtype;
  std::string const computed = c.product_dtype == Dtype::bf16   ? "bfloat16"
                               : c.product_dtype == Dtype::fp16 ? "float16"
                                                                : "float32";
  TESSERA_VALIDATE(wanted.empty() || wanted == computed, ConfigError, "bnb_4bit_compute_dtype is ",
                   wanted, ", but products of this run are in ", computed,
                   "; give --bf16 or --fp16 for 16 bits, or leave it out");
  return zero::QuantizedBase{.is_int8 = c.load_in_8bit,
                             .double_quantized = c.bnb_4bit_use_double_quant,
                             .transposed = transposed,
                             .stored_dtype = c.dtype,
                             .compute_dtype = c.product_dtype};
}

}  // namespace

UnitMessages unit_messages() {
  return comm::nccl_use() ? UnitMessages::one : UnitMessages::by_bucket_size;
}

zero::EngineConfig engine_config(config::ResolvedConfig const& c,
                                 std::optional<model::LoraOptions> const& lora,
                                 UnitMessages messages) {
  zero::EngineConfig e;
  e.quantized_base = quantized_base(c, lora && lora->transposed);
  e.partition = partition(c);
  e.dtype = c.dtype;
  // fp8 products convert the weights themselves.
  e.product_dtype = c.fp8 ? c.dtype : c.product_dtype;
  e.communication_dtype = c.reproducible_world() ? Dtype::fp32 : c.communication_dtype;
  e.accumulation_dtype = c.accumulation_dtype;
  e.accumulation_steps = static_cast<int>(c.accumulation_steps);
  e.reduction = {.average = c.gradient_allreduce_op == "sum" ? zero::GradientAverage::sum
                                                             : zero::GradientAverage::mean,
                 .division = c.prescale_gradients ? zero::GradientDivision::before_reduction
                                                  : zero::GradientDivision::after_reduction,
                 .predivide_factor = c.gradient_predivide_factor,
                 .reduce_scatter = c.reduce_scatter};
  e.sum_order = c.reproducible_world() ? zero::SumOrder::tree : zero::SumOrder::ranks;
  // DeepSpeed's default below stage 3 is false; the results are the same
  e.overlap_comm = c.overlap_comm || !c.origins.contains("overlap_comm");
  std::int64_t const smallest_limit = messages == UnitMessages::one ? unlimited : least_bucket;
  e.reduce_bucket_size = std::max(c.reduce_bucket_size, smallest_limit);
  e.allgather_bucket_size = std::max(c.allgather_bucket_size, smallest_limit);
  e.max_grad_norm = c.max_grad_norm;
  e.optimizer = c.optimizer;
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
  return e;
}

zero::EngineConfig reference_config(config::ResolvedConfig config) {
  config.offload.optimizer = config::OffloadDevice::none;
  config.load_in_4bit = config.load_in_8bit = false;  // codes are for a base of adapters
  return engine_config(config);
}

bool reference_is_part_of_model(config::TrainingArguments const& arguments,
                                std::optional<model::LoraOptions> const& lora) {
  return arguments.ref_model_name_or_path.empty() && arguments.adapter.empty() && lora &&
         lora->modules_to_save.empty();
}

void check_space(config::ResolvedConfig const& c, memory::MemorySpace space) {
  auto const require = [](bool holds, auto const&... why) {
    TESSERA_VALIDATE(holds, ConfigError, why...);
  };
  auto const& o = c.offload;
  auto const& name = c.optimizer.algorithm;
  bool const swaps = o.optimizer == config::OffloadDevice::nvme,
             on_device = space == memory::MemorySpace::device,
             offloads = on_device && o.optimizer != config::OffloadDevice::none;
  require(on_device || o.delay_from == 0, "--delayed_update_from_step ", o.delay_from,
          " lets the CPU update while a device computes, and this run computes on CPUs; use a GPU "
          "or --device_memory, or leave the option out");
  require(on_device || !swaps || c.dtype != c.master_dtype ||
              std::ranges::any_of(c.optimizer.states, &optim::StateSpec::is_plain),
          "offload_optimizer to NVMe with ", name, " and fp32 weights: no state of it goes to a ",
          "drive; leave offload_optimizer out, or use bf16 or fp16");
  require(!on_device || !c.reproducible_world(),
          "--reproducible world on a device: NCCL and devices ",
          "form sums in another order; use the CPU");
  require(!offloads || c.stage > 0, "offload_optimizer is \"", name_of(o.optimizer),
          "\" at ZeRO stage 0, which has no offload; use stage 1, 2 or 3");
  require(!offloads || o.ratio == 1.0 || optim::is_elementwise(c.optimizer),
          "offload_optimizer.ratio is ", o.ratio, " with ", name,
          ", whose update needs complete parameters; leave ratio out");
  require(!offloads || !swaps || c.master_dtype == Dtype::fp32,
          "offload_optimizer from a device to NVMe with ", name_of(c.master_dtype),
          " master weights, which a drive does not hold; use fp32 master weights, or device "
          "\"cpu\"");
}

model::ModelOptions model_options(config::ResolvedConfig const& c) {
  model::ModelOptions options(c.dtype, c.product_dtype);
  options.fp8 = c.fp8;
  options.label_smoothing = c.label_smoothing_factor;
  options.dynamic_loss = c.loss_type == config::LossType::dft;
  options.neftune_noise_alpha = c.neftune_noise_alpha;
  return options;
}

}  // namespace tessera::train
