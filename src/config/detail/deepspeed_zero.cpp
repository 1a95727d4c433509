#include "detail/deepspeed_zero.hpp"

#include <string>
#include <tuple>

#include "detail/group_keys.hpp"
#include "detail/offload_keys.hpp"
#include "detail/quantization_keys.hpp"

namespace tessera::config::detail {
namespace {

using enum OptionType;

void add_zero(OptionTable& t) {
  t.group("ZeRO");
  std::string const z = "zero_optimization.";
  t.add(integer, z + "stage", 0,
        "0: nothing is partitioned; 1: optimizer states; 2: also gradients; 3: also weights")
      .at_least(0)
      .at_most(3);
  t.add(boolean, z + "overlap_comm", {},
        "false: no overlap of gradient reduction with backward; none: overlap, with the same "
        "results")
      .auto_is(by_default);
  t.add(boolean, z + "reduce_scatter", true,
        "stages 1 and 2: false divides gradients as prescale_gradients says; both reduce-scatter")
      .auto_is(by_default);
  t.add(integer, z + "reduce_bucket_size", 500000000, "gradients per reduction")
      .at_least(1)
      .unit("elements")
      .auto_is("hidden_size^2");
  t.add(integer, z + "allgather_bucket_size", 500000000, "stages 1 and 2: weights per all-gather")
      .at_least(1)
      .unit("elements")
      .auto_is(by_default);
}

void add_zero_stage3(OptionTable& t) {
  std::string const z = "zero_optimization.";
  t.add(integer, z + "stage3_prefetch_bucket_size", 50000000, "stage 3: weights prefetched")
      .at_least(0)
      .unit("elements")
      .alias(z + "prefetch_bucket_size")
      .auto_is("0.9 hidden_size^2");
  t.add(integer, z + "stage3_param_persistence_threshold", 100000,
        "stage 3: keep parameters below this size")
      .at_least(0)
      .unit("elements")
      .alias(z + "param_persistence_threshold")
      .auto_is("10 hidden_size")
      .hint(
          "no effect: a unit is gathered in one all-gather, so small parameters cost no message of "
          "their own");
  t.add(integer, z + "stage3_max_live_parameters", 1000000000,
        "stage 3: most weights gathered at a time")
      .at_least(0)
      .unit("elements")
      .alias(z + "max_live_parameters")
      .auto_is(by_default);
  t.add(integer, z + "stage3_max_reuse_distance", 1000000000,
        "stage 3: keep weights that are used again within this distance")
      .at_least(0)
      .unit("elements")
      .alias(z + "max_reuse_distance")
      .auto_is(by_default)
      .hint("no effect: only stage3_max_live_parameters decides");
  t.add(integer, z + "stage3_model_persistence_threshold", {},
        "stage 3: limit of all kept parameters")
      .at_least(0)
      .unit("elements")
      .alias(z + "model_persistence_threshold")
      .auto_is(by_default)
      .hint("no effect: a unit is gathered in one all-gather");
  t.add(integer, z + "sub_group_size", 1000000000, "stage 3: elements per optimizer update")
      .at_least(1)
      .unit("elements")
      .auto_is(by_default)
      .hint("no effect on results; with offload_optimizer the size of a tile");
  t.add(boolean, z + "stage3_gather_16bit_weights_on_model_save", false,
        "checkpoints and the final model include the weights in the working precision")
      .alias(z + "gather_16bit_weights_on_model_save")
      .alias(z + "stage3_gather_fp16_weights_on_model_save")
      .auto_is(by_default);
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
    t.add(boolean, z + name, preset, meaning).auto_is(by_default).hint(same_result);
  t.add(boolean, z + "contiguous_gradients", true, "copy gradients to one buffer")
      .auto_is(by_default)
      .hint("no effect: kernels write the gradients of a unit into one buffer");
  t.add(boolean, z + "round_robin_gradients", false,
        "assign parameters to ranks in round-robin order")
      .auto_is(by_default)
      .hint("no effect: every rank has a shard of the same size of every unit");
  t.add(boolean, z + "load_from_fp32_weights", true,
        "resume from the fp32 master weights; false: from the 16-bit weights")
      .auto_is(by_default)
      .hint("no effect: a resume always restores the fp32 master weights");
  char const* const gathers = "no effect: weights are gathered in place, unit by unit";
  t.add(boolean, z + "stage3_use_all_reduce_for_fetch_params", false, "gather by all-reduce")
      .alias(z + "use_all_reduce_for_fetch_params")
      .auto_is(by_default)
      .hint(gathers);
  t.add(boolean, z + "stage3_allgather_sequential", false, "gather one by one")
      .alias(z + "allgather_sequential")
      .auto_is(by_default)
      .hint(gathers);
  t.add(integer, z + "stage3_module_granularity_threshold", 0, "gather small modules together")
      .alias(z + "module_granularity_threshold")
      .auto_is(by_default)
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

}  // namespace tessera::config::detail
