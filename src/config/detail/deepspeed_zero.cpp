#include "detail/deepspeed_zero.hpp"

#include <algorithm>
#include <string>
#include <tuple>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::config::detail {
namespace {

using enum OptionType;

void add_zero(OptionTable& t) {
  t.group("ZeRO");
  std::string const z = "zero_optimization.";
  t.add(integer, z + "stage", 0,
        "0: nothing is partitioned; 1: optimizer states; 2: also gradients; 3: also weights")
      .between(0, 3);
  t.add(boolean, z + "overlap_comm", {},
        "false: no overlap of gradient reduction with backward; none: overlap, with the same "
        "results");
  t.add(boolean, z + "reduce_scatter", true,
        "stages 1 and 2: false divides gradients as prescale_gradients says; both reduce-scatter");
  t.add(integer, z + "reduce_bucket_size", 500000000, "gradients per reduction")
      .at_least(1, "elements")
      .auto_is("hidden_size^2");
  t.add(integer, z + "allgather_bucket_size", 500000000, "stages 1 and 2: weights per all-gather")
      .at_least(1, "elements");
}

void add_zero_stage3(OptionTable& t) {
  std::string const z = "zero_optimization.";
  t.add(integer, z + "stage3_prefetch_bucket_size", 50000000, "stage 3: weights prefetched")
      .at_least(0, "elements")
      .alias(z + "prefetch_bucket_size")
      .auto_is("0.9 hidden_size^2");
  t.add(integer, z + "stage3_param_persistence_threshold", 100000,
        "stage 3: keep parameters below this size")
      .at_least(0, "elements")
      .alias(z + "param_persistence_threshold")
      .auto_is("10 hidden_size")
      .hint(
          "no effect: a unit is gathered in one all-gather, so small parameters cost no message of "
          "their own");
  t.add(integer, z + "stage3_max_live_parameters", 1000000000,
        "stage 3: most weights gathered at a time")
      .at_least(0, "elements")
      .alias(z + "max_live_parameters");
  t.add(integer, z + "stage3_max_reuse_distance", 1000000000,
        "stage 3: keep weights that are used again within this distance")
      .at_least(0, "elements")
      .alias(z + "max_reuse_distance")
      .hint("no effect: only stage3_max_live_parameters decides");
  t.add(integer, z + "stage3_model_persistence_threshold", {},
        "stage 3: limit of all kept parameters")
      .at_least(0, "elements")
      .alias(z + "model_persistence_threshold")
      .hint("no effect: a unit is gathered in one all-gather");
  t.add(integer, z + "sub_group_size", 1000000000, "stage 3: elements per optimizer update")
      .at_least(1, "elements")
      .hint("no effect on results; with offload_optimizer the size of a tile");
  t.add(boolean, z + "stage3_gather_16bit_weights_on_model_save", false,
        "checkpoints and the final model include the weights in the working precision")
      .alias(z + "gather_16bit_weights_on_model_save")
      .alias(z + "stage3_gather_fp16_weights_on_model_save");
}

void add_zero_without_effect(OptionTable& t) {
  std::string const z = "zero_optimization.";
  for (auto const& [name, preset, meaning] :
       {std::tuple{"ignore_unused_parameters", true, "allow parameters without gradients"},
        {"use_multi_rank_bucket_allreduce", true, "one reduction per bucket"},
        {"allgather_partitions", true, "all-gather weights instead of broadcasts"},
        {"memory_efficient_linear", true, "DeepSpeed's linear layer"},
        {"override_module_apply", true, "a Python hook"},
        {"log_trace_cache_warnings", false, "warn about changed module orders"},
        {"enable_sanity_checks", false, "extra checks"},
        {"pipeline_loading_checkpoint", false, "load checkpoints rank by rank"},
        {"elastic_checkpoint", false, "checkpoints for any rank count"},
        {"compute_grad_norm", true, "compute the gradient norm"},
        {"parameter_alignment", false, "align parameters"},
        {"save_muon_momentum_buffer_in_memory", false, "option of the Muon optimizer"},
        {"grad_hooks", true, "hooks on gradients"}})
    t.add(boolean, z + name, preset, meaning).hint(same_result);
  t.add(boolean, z + "contiguous_gradients", true, "copy gradients to one buffer")
      .hint("no effect: kernels write the gradients of a unit into one buffer");
  t.add(boolean, z + "round_robin_gradients", false,
        "assign parameters to ranks in round-robin order")
      .hint("no effect: every rank has a shard of the same size of every unit");
  t.add(boolean, z + "load_from_fp32_weights", true,
        "resume from the fp32 master weights; false: from the 16-bit weights")
      .hint("no effect: a resume always restores the fp32 master weights");
  char const* const gathers = "no effect: weights are gathered in place, unit by unit";
  t.add(boolean, z + "stage3_use_all_reduce_for_fetch_params", false, "gather by all-reduce")
      .alias(z + "use_all_reduce_for_fetch_params")
      .hint(gathers);
  t.add(boolean, z + "stage3_allgather_sequential", false, "gather one by one")
      .alias(z + "allgather_sequential")
      .hint(gathers);
  t.add(integer, z + "stage3_module_granularity_threshold", 0, "gather small modules together")
      .alias(z + "module_granularity_threshold")
      .hint(gathers);
  for (char const* name : {"classes", "names", "name_suffixes"})
    t.add(list, z + "leaf_module." + name, {}, "modules gathered together").hint(gathers);
  t.add(boolean, z + "legacy_stage1", false, "old stage 1").refuse("remove it");
}

void add_zero_plus_plus(OptionTable& t) {
  std::string const z = "zero_optimization.";
  for (char const* name :
       {"cpu_offload", "cpu_offload_param", "cpu_offload_params", "cpu_offload_use_pin_memory"})
    t.add(boolean, z + name, false, "old names of the offload blocks")
        .hint("no effect when false; true is read as offload_optimizer or offload_param");
  t.add(json, z + "zenflow", {}, "ZenFlow").refuse("remove the block");
  add_quantization(t);
  add_groups(t);
}

}  // namespace

void add_zero_optimization(OptionTable& t) {
  add_zero(t);
  add_zero_stage3(t);
  add_zero_without_effect(t);
  t.group("ZeRO: offloading and variants");
  add_offload(t);
  add_zero_plus_plus(t);
}

namespace {

constexpr char const* shard_size = "zero_optimization.mics_shard_size";
constexpr char const* secondary_size = "zero_optimization.zero_hpz_partition_size";
constexpr char const* hierarchical = "zero_optimization.mics_hierarchical_params_gather";

void resolve_secondary(DeepSpeedConfig const& json, ResolvedConfig& config) {
  auto const* size = json.find(secondary_size);
  if (!size || size->as_int() == 1) return;
  TESSERA_VALIDATE(config.stage == 3, ConfigError, json.source, ": ", secondary_size, " is ",
                   size->as_int(), " at stage ", config.stage,
                   ", which gathers no weights; use stage 3 or remove the key");
  TESSERA_VALIDATE(config.shard_group_size == 0, ConfigError, json.source, ": ", secondary_size,
                   " is ", size->as_int(), " and ", shard_size, " is ", config.shard_group_size,
                   "; MiCS gathers within its groups already: remove one of them");
  config.secondary_group_size = size->as_int();
  config.origins["secondary_group_size"] = Origin::deepspeed;
}

}  // namespace

void add_groups(OptionTable& t) {
  t.add(OptionType::integer, secondary_size, 1,
        "ZeRO++: consecutive ranks, usually of a node, that keep a second partition of the weights "
        "of stage 3, from which later gathers of a step come; 1: none")
      .at_least(1);
  t.add(OptionType::integer, shard_size, -1,
        "MiCS: consecutive ranks that share one copy of the model states of stage 3; -1: all ranks")
      .at_least(-1);
  t.add(OptionType::boolean, hierarchical, false,
        "MiCS: gathers of groups that span nodes have two levels, as --collectives two-level");
}

void resolve_communication(DeepSpeedConfig const& json, ResolvedConfig& config) {
  resolve_groups(json, config);
  resolve_quantization(json, config);
}

void resolve_groups(DeepSpeedConfig const& json, ResolvedConfig& config) {
  auto const* size = json.find(shard_size);
  bool const has_groups = size && size->as_int() > 0;
  auto const* gather = json.find(hierarchical);
  if (has_groups) {
    TESSERA_VALIDATE(
        config.stage == 3, ConfigError, json.source, ": ", shard_size, " is ", size->as_int(),
        " at stage ", config.stage,
        "; MiCS shares the states of stage 3 in groups: use stage 3 or remove the key");
    config.shard_group_size = size->as_int();
    config.origins["shard_group_size"] = Origin::deepspeed;
  }
  resolve_secondary(json, config);
  if (!gather || !gather->as_bool()) return;
  TESSERA_VALIDATE(has_groups, ConfigError, json.source, ": ", hierarchical,
                   " is true without groups; set ", shard_size, " or remove the key");
  config.hierarchical_gather = true;
  config.origins["hierarchical_gather"] = Origin::deepspeed;
}

namespace {

constexpr char const* weights = "zero_optimization.zero_quantized_weights";
constexpr char const* gradients = "zero_optimization.zero_quantized_gradients";
constexpr char const* loco = "zero_optimization.zeropp_loco_param";

ErrorFeedback feedback_of(ConfigTree const& block, std::string const& source) {
  TESSERA_VALIDATE(block.is_object(), ConfigError, source, ": ", loco, " is ", block.type_name(),
                   "; write a block with err_beta and reset_T");
  ErrorFeedback out;
  std::vector<std::string> unknown;
  for (auto const& [key, value] : block.as_object())
    if (key != "err_beta" && key != "reset_T") unknown.push_back(concat(loco, ".", key));
  TESSERA_VALIDATE(unknown.empty(), ConfigError, source,
                   unknown.size() == 1 ? ": unknown key " : ": unknown keys ", join(unknown),
                   "; the block has err_beta and reset_T");
  for (auto const& [key, value] : block.as_object()) {
    TESSERA_VALIDATE(value.is_number(), ConfigError, source, ": ", loco, ".", key, " is ",
                     value.type_name(), "; it must be a number");
    (key == "err_beta" ? out.beta : out.reset_steps) = value.as_double();
  }
  TESSERA_VALIDATE(out.beta >= 0.0 && out.beta <= 1.0, ConfigError, source, ": ", loco,
                   ".err_beta is ", out.beta, "; use a number from 0 to 1");
  TESSERA_VALIDATE(
      out.reset_steps >= 1.0 && out.reset_steps <= 1e15 &&
          out.reset_steps == static_cast<double>(static_cast<std::int64_t>(out.reset_steps)),
      ConfigError, source, ": ", loco, ".reset_T is ", out.reset_steps,
      "; use a number of steps from 1 on");
  return out;
}

}  // namespace

void add_quantization(OptionTable& t) {
  t.add(OptionType::boolean, weights, false,
        "ZeRO++: all-gathers of the weights of stage 3 move codes of 8 bits");
  t.add(OptionType::boolean, "zero_optimization.zero_quantized_nontrainable_weights", false,
        "ZeRO++: frozen weights are kept and gathered as codes")
      .refuse(
          "weights that do not train are kept in the working dtype; remove it, or use "
          "zero_quantized_weights, which gathers them as codes, too");
  t.add(OptionType::boolean, gradients, false,
        "ZeRO++: gradients of stage 3 are reduced as codes, of 8 bits inside nodes and of 4 "
        "between nodes");
  t.add(OptionType::json, loco, {},
        "LoCo, with zero_quantized_gradients: a block with err_beta (0.8) and reset_T (1024 "
        "steps)");
}

void resolve_quantization(DeepSpeedConfig const& json, ResolvedConfig& config) {
  auto const is_true = [&](char const* key) {
    auto const* value = json.find(key);
    return value && value->as_bool();
  };
  config.quantized_weights = is_true(weights);
  config.quantized_gradients = is_true(gradients);
  for (char const* key : {weights, gradients})
    TESSERA_VALIDATE(!is_true(key) || config.stage == 3, ConfigError, json.source, ": ", key,
                     " is true at stage ", config.stage,
                     "; ZeRO++ is of stage 3: use it or remove the key");
  TESSERA_VALIDATE(!config.quantized_gradients || config.shard_group_size == 0, ConfigError,
                   json.source, ": ", gradients, " is true and mics_shard_size is ",
                   config.shard_group_size,
                   "; quantized gradients are reduced over all ranks: remove one of them");
  auto const* block = json.find(loco);
  if (block && !block->is_null()) {
    TESSERA_VALIDATE(config.quantized_gradients, ConfigError, json.source, ": ", loco, " without ",
                     gradients, ", whose errors it returns; set that to true or remove the block");
    config.error_feedback = feedback_of(*block, json.source);
    config.origins["error_feedback"] = Origin::deepspeed;
  }
  if (config.quantized_weights) config.origins["quantized_weights"] = Origin::deepspeed;
  if (config.quantized_gradients) config.origins["quantized_gradients"] = Origin::deepspeed;
}

namespace {

std::string const zero = "zero_optimization.";
char const* const directories =
    "device nvme: directory on the drive; several, separated by ':', are striped";

void add_flags(
    OptionTable& t, std::string const& block,
    std::initializer_list<std::tuple<char const*, bool, char const*, char const*>> flags) {
  for (auto const& [name, preset, meaning, hint] : flags)
    t.add(boolean, block + name, preset, meaning).hint(hint);
}

void add_offload_param(OptionTable& t) {
  std::string const block = zero + "offload_param.";
  t.add(choice, block + "device", "none", "memory space of the weights in stage 3")
      .one_of({"none", "cpu", "nvme"})
      .auto_is("none");
  t.add(path, block + "nvme_path", {}, directories);
  t.add(boolean, block + "pin_memory", true,
        "pinned host memory for weights of a device; no effect on CPUs");
  t.add(integer, block + "buffer_count", 5, "device nvme: shards of units in memory")
      .between(1, 1024);
  t.add(integer, block + "buffer_size", 100000000,
        "device nvme: most elements of a rank's shard of a unit")
      .at_least(1);
  t.add(integer, block + "max_in_cpu", 1000000000,
        "device nvme: elements per rank that host memory keeps, first units first")
      .at_least(0);
}

void add_offload_optimizer(OptionTable& t) {
  std::string const block = zero + "offload_optimizer.";
  t.add(choice, block + "device", "none",
        "memory space of the optimizer's states and the master weights")
      .one_of({"none", "cpu", "nvme"})
      .auto_is("none");
  t.add(path, block + "nvme_path", {}, directories);
  t.add(integer, block + "buffer_count", 4, "tiles that are updated or transferred at a time")
      .between(1, 1024);
  t.add(boolean, block + "pin_memory", true,
        "pinned host memory for gradients and returning weights; no effect on CPUs");
  char const* const overlaps = "no effect: reads and writes always overlap the update";
  add_flags(t, block,
            {{"pipeline", false, "overlap reads and writes", overlaps},
             {"pipeline_read", false, "overlap reads", overlaps},
             {"pipeline_write", false, "overlap writes", overlaps},
             {"fast_init", false, "fast initialization", "no effect: it always is"}});
  t.add(boolean, block + "super_offload", false, "states move between GPU and CPU")
      .refuse("it needs a GPU with coherent memory; leave it out");
  t.add(real, block + "ratio", 1.0,
        "fraction of the elements that the host updates, at least; 1 with device nvme; no effect "
        "on CPUs")
      .between(0, 1);
  t.add(real, block + "cpuadam_cores_perc", 0.8, "fraction of the cores")
      .between(0, 1)
      .hint("no effect: the update uses the cores of the rank");
}

void check_nvme(Offload const& o, std::int64_t stage, std::string const& source) {
  TESSERA_VALIDATE(o.optimizer != OffloadDevice::nvme || stage > 0, ConfigError, source,
                   ": offload_optimizer.device \"nvme\" needs zero_optimization.stage 1, 2 or 3");
  for (auto const& [device, block, paths] :
       {std::tuple{o.optimizer, "offload_optimizer", &o.nvme_path},
        {o.parameters, "offload_param", &o.parameters_nvme_path}}) {
    if (device != OffloadDevice::nvme) continue;
    bool const is_empty = paths->empty() || paths->front() == ':' || paths->back() == ':' ||
                          paths->find("::") != std::string::npos;
    TESSERA_VALIDATE(!is_empty, ConfigError, source, ": ", block,
                     ".device is \"nvme\" and nvme_path ",
                     paths->empty() ? "is missing" : concat("\"", *paths, "\" has an empty name"),
                     "; name a directory on a local NVMe drive, or several separated by ':'");
  }
  TESSERA_VALIDATE(o.ratio == 1.0 || o.optimizer != OffloadDevice::nvme, ConfigError, source,
                   ": offload_optimizer.ratio is ", o.ratio,
                   " with device \"nvme\", which takes all states; leave ratio out");
  TESSERA_VALIDATE(o.block_size % 4096 == 0, ConfigError, source, ": aio.block_size is ",
                   o.block_size, "; it must be a multiple of 4096 bytes");
}

}  // namespace

void add_offload(OptionTable& t) {
  add_offload_param(t);
  add_offload_optimizer(t);
}

void add_aio(OptionTable& t) {
  t.group("Disk");
  t.add(integer, "aio.block_size", 1048576, "bytes of one read or write, a multiple of 4096")
      .at_least(4096);
  t.add(integer, "aio.queue_depth", 8, "reads in flight, and writes in flight").between(1, 128);
  t.add(integer, "aio.intra_op_parallelism", 1, "threads of one transfer")
      .between(1, 64)
      .alias("aio.thread_count");
  t.add(boolean, "aio.single_submit", false, "submit requests one by one");
  t.add(boolean, "aio.overlap_events", true,
        "submit further requests before all earlier ones have completed");
  t.add(boolean, "aio.use_gds", false, "GPUDirect Storage").refuse("leave it out");
}

ResolvedOffload resolve_offload(DeepSpeedConfig const& json, std::int64_t stage) {
  ResolvedOffload out;
  Offload& o = out.offload;
  std::string const optimizer = zero + "offload_optimizer.";
  auto const take = [&](std::string const& key, auto& value) {
    if (auto const* given = json.find(key)) assign(value, *given, key);
  };
  take(optimizer + "device", o.optimizer);
  take(zero + "offload_param.device", o.parameters);
  if (o.parameters != OffloadDevice::none && stage != 3) {  // as in DeepSpeed
    o.parameters = OffloadDevice::none;
    out.notes.push_back(concat("offload_param: no effect at zero_optimization.stage ", stage,
                               ", where every rank keeps the weights; stage 3 offloads them"));
  }
  std::string const parameters = zero + "offload_param.";
  if (o.parameters != OffloadDevice::none) take(parameters + "pin_memory", o.parameters_pin_memory);
  if (o.optimizer == OffloadDevice::none && !o.uses_nvme()) return out;
  take(optimizer + "nvme_path", o.nvme_path);
  take(parameters + "nvme_path", o.parameters_nvme_path);
  take(optimizer + "buffer_count", o.buffer_count);
  take(zero + "sub_group_size", o.tile_numel);
  take(parameters + "buffer_count", o.parameters_buffer_count);
  take(parameters + "buffer_size", o.parameters_buffer_size);
  take(parameters + "max_in_cpu", o.max_in_cpu);
  take("aio.block_size", o.block_size);
  take("aio.queue_depth", o.queue_depth);
  take("aio.intra_op_parallelism", o.intra_op_parallelism);
  take("aio.single_submit", o.single_submit);
  take("aio.overlap_events", o.overlap_events);
  o.tile_numel = std::min(o.tile_numel, Offload{}.tile_numel);
  take(optimizer + "pin_memory", o.pin_memory);
  take(optimizer + "ratio", o.ratio);
  if (o.uses_nvme()) check_nvme(o, stage, json.source);
  return out;
}

}  // namespace tessera::config::detail
