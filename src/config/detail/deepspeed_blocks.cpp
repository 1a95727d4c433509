#include "detail/deepspeed_zero.hpp"

#include <algorithm>
#include <sstream>
#include <string>

#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using enum OptionType;

OptionType type_of(char letter) {
  switch (letter) {
    case 'b':
      return boolean;
    case 'i':
      return integer;
    case 'r':
      return real;
    case 'l':
      return list;
    case 'n':
      return numbers;
    case 'j':
      return json;
    default:
      return string;
  }
}

/// Adds members without an effect. @p members: "b:enabled i:num_bits", the letters as in type_of().
void add_members(OptionTable& t, std::string const& block, char const* meaning,
                 std::string const& note, char const* members) {
  std::istringstream words(members);
  for (std::string word; words >> word;)
    t.add(type_of(word[0]), concat(block, ".", word.substr(2)), {}, meaning).hint(note);
}

/// A feature that is not supported: its switch is refused unless it is off, and its other members
/// have no effect then.
struct Feature {
  char const* block;
  char const* key;  ///< the switch
  char const* meaning;
  char const* way_out;
  char const* members;
};
void add_feature(OptionTable& t, Feature const& f) {
  std::string const name = concat(f.block, ".", f.key);
  t.add(boolean, name, false, f.meaning).refuse(f.way_out);
  add_members(t, f.block, f.meaning, concat("no effect without ", name), f.members);
}

void add_checkpoint(OptionTable& t) {
  t.group("Checkpoints and activations");
  t.add(string, "checkpoint.tag_validation", "Warn", "check that ranks agree on the checkpoint tag")
      .hint("no effect: they always agree");
  t.add(boolean, "checkpoint.load_universal", false, "load a universal checkpoint")
      .hint("no effect: every checkpoint resumes on any rank count and stage");
  t.add(boolean, "checkpoint.use_node_local_storage", false, "save to the local disk of each node")
      .refuse("all ranks write to one output_dir on a shared file system");
  t.add(boolean, "checkpoint.checkpoint_serialization", true, "serialization of checkpoints")
      .hint("no effect: checkpoints are HDF5");
  t.add(boolean, "checkpoint.parallel_write.pipeline_stage", false, "parallel writes")
      .hint("no effect: every rank writes its own shard");
  char const* const hdf5 = "no effect: checkpoints are HDF5";
  for (char const* name : {"checkpoint.writer.type", "checkpoint.writer.data_parallel"})
    t.add(string, name, {}, "checkpoint writer").hint(hdf5);
  for (char const* name : {"checkpoint.writer.io_buffer_size", "checkpoint.writer.io_multiplier"})
    t.add(integer, name, {}, "checkpoint writer").hint(hdf5);
  for (char const* name : {"checkpoint.writer.io_buffer_double",
                           "checkpoint.writer.show_statistics", "checkpoint.writer.decoupled"})
    t.add(boolean, name, {}, "checkpoint writer").hint(hdf5);
  char const* const own =
      "no effect: the block configures deepspeed.checkpointing, which Hugging Face models do not "
      "call; use --gradient_checkpointing";
  t.add(boolean, "activation_checkpointing.partition_activations", false,
        "divide activation checkpoints among the ranks of model parallelism")
      .hint("no effect: without model parallelism the only part is the complete checkpoint");
  for (char const* name :
       {"contiguous_memory_optimization", "synchronize_checkpoint_boundary", "profile"})
    t.add(boolean, concat("activation_checkpointing.", name), false,
          "option of DeepSpeed's activation checkpointing")
        .hint(own);
  t.add(boolean, "activation_checkpointing.cpu_checkpointing", false,
        "with --gradient_checkpointing on a GPU: keep the inputs of blocks in host memory");
  t.add(integer, "activation_checkpointing.number_checkpoints", {},
        "option of DeepSpeed's activation checkpointing")
      .hint(own);
  add_feature(
      t, {"nebula", "enabled", "asynchronous checkpoints of a cloud service", "remove the block",
          "s:nebula_load_path b:enable_nebula_load s:persistent_storage_path "
          "i:persistent_time_interval i:num_of_version_in_retention"});
  t.add(json, "datastates_ckpt", {}, "asynchronous checkpoints").refuse("remove the block");
}

void add_monitor(OptionTable& t, std::string const& block, char const* what) {
  t.add(boolean, block + ".enabled", false, concat("write ", what, " at every step"));
  t.add(path, block + ".output_path", "", concat("directory of the ", what)).shown_as("path");
  t.add(string, block + ".job_name", "DeepSpeedJobName", "subdirectory of output_path");
}

void add_profilers(OptionTable& t) {
  t.add(boolean, "flops_profiler.enabled", false,
        "print parameters, multiplications and time of each unit after one step");
  t.add(integer, "flops_profiler.profile_step", 1, "the step to profile").at_least(1, "steps");
  t.add(real, "flops_profiler.recompute_fwd_factor", 0.0,
        "forward passes that backward repeats, for the FLOPS of a step")
      .at_least(0);
  t.add(integer, "flops_profiler.module_depth", -1, "depth of the module tree to aggregate")
      .hint("no effect: the table has one line per ZeRO unit");
  t.add(integer, "flops_profiler.top_modules", 1, "units in the list of the slowest ones")
      .at_least(1);
  t.add(boolean, "flops_profiler.detailed", true, "one line per unit, not only the totals");
  t.add(path, "flops_profiler.output_file", {}, "write the table to this file instead of the log");
  t.add(boolean, "comms_logger.enabled", false,
        "time each collective operation and print a table at the end; slower, for no operations "
        "overlap");
  t.add(boolean, "comms_logger.verbose", false, "also log each operation");
  t.add(boolean, "comms_logger.prof_all", true, "all operations, not only those of prof_ops");
  t.add(list, "comms_logger.prof_ops", ConfigTree::Array{}, "operations to time");
  t.add(boolean, "comms_logger.debug", false, "log the calling Python function")
      .hint("no effect: no Python function calls");
}

void add_observation(OptionTable& t) {
  t.group("Log and measure");
  t.add(integer, "seed", {}, "no key of DeepSpeed").hint("no effect, as in DeepSpeed: use --seed");
  t.add(integer, "local_rank", {}, "no key of DeepSpeed")
      .hint("no effect, as in DeepSpeed: MPI knows the ranks");
  t.add(integer, "steps_per_print", {},
        "steps between log lines, in addition to those of --logging_steps; 0: none")
      .at_least(0, "steps");
  t.add(boolean, "wall_clock_breakdown", false,
        "log the time of data, forward, backward and step with each log line");
  t.add(boolean, "memory_breakdown", false, "log memory by purpose after the first step");
  t.add(boolean, "dump_state", false, "log every resolved value at the start");
  t.add(string, "log_level", {}, "log level").hint("no effect: use --log_level");
  t.add(integer, "vocabulary_size", {}, "warn if it is not a multiple of 8")
      .hint("no effect: the model's configuration has it");
  t.add(boolean, "disable_python_gc", false, "switch Python's garbage collector off")
      .hint("no effect: no Python runs");
  for (char const* name : {"enabled", "synchronized"})
    t.add(boolean, concat("timers.throughput.", name), true, "measure samples per second")
        .hint("no effect: metrics.jsonl always has tokens_per_second");
  add_profilers(t);
  add_monitor(t, "tensorboard", "TensorBoard event files");
  add_monitor(t, "csv_monitor", "CSV files");
  char const* const local =
      "nothing is sent to a service; use the tensorboard or csv_monitor block, or metrics.jsonl in "
      "output_dir";
  add_feature(t, {"wandb", "enabled", "report metrics to Weights & Biases", local,
                  "s:group s:team s:project"});
  add_feature(t, {"comet", "enabled", "report metrics to Comet", local,
                  "i:samples_log_interval s:project s:workspace s:api_key s:experiment_name "
                  "s:experiment_key b:online s:mode"});
}

void add_data_features(OptionTable& t) {
  char const* const curriculum =
      "s:curriculum_type i:min_difficulty i:max_difficulty s:schedule_type j:schedule_config";
  add_feature(
      t, {"curriculum_learning", "enabled", "curriculum learning", "remove the block", curriculum});
  add_feature(
      t, {"data_efficiency", "enabled", "data efficiency library", "remove the block", "i:seed"});
  add_members(t, "data_efficiency.data_sampling", "data efficiency library",
              "no effect without data_efficiency.enabled",
              "b:enabled i:num_epochs i:num_workers b:pin_memory");
  add_members(t, "data_efficiency.data_sampling.curriculum_learning", "data efficiency library",
              "no effect without data_efficiency.enabled",
              "b:enabled s:data_cluster_path j:curriculum_metrics");
  add_members(t, "data_efficiency.data_sampling.dynamic_batching", "data efficiency library",
              "no effect without data_efficiency.enabled",
              "b:enabled s:metrics_path s:lr_scaling_method i:min_batch_size i:max_batch_size "
              "s:sequence_picking_order i:max_tokens b:verbose");
  add_members(t, "data_efficiency.data_routing", "data efficiency library",
              "no effect without data_efficiency.enabled", "b:enabled j:random_ltd");
}

void add_batch_features(OptionTable& t) {
  add_feature(t, {"elasticity", "enabled", "elastic batch sizes",
                  "remove the block; a checkpoint resumes on any rank count",
                  "i:max_train_batch_size n:micro_batch_sizes i:min_gpus i:max_gpus "
                  "i:num_gpus_per_node i:model_parallel_size i:min_time b:prefer_larger_batch "
                  "b:ignore_non_elastic_batch_info r:version"});
}

void add_autotuning(OptionTable& t) {
  auto const add = [&t](OptionType type, char const* key, ConfigTree const& value,
                        char const* meaning) -> Option& {
    return t.add(type, concat("autotuning.", key), value, meaning);
  };
  add(boolean, "enabled", false, "search for the fastest configuration first: --auto_tune");
  add(boolean, "overwrite", true, "false: take the result of an earlier search of the same run");
  add(integer, "start_profile_step", 3, "first step of a candidate that is measured").at_least(1);
  add(integer, "end_profile_step", 5,
      "first step of a candidate that is no longer measured; by default half a second is over as "
      "well")
      .at_least(2);
  add(integer, "tuner_num_trials", 50, "most candidates").at_least(1);
  add(integer, "tuner_early_stopping", 5,
      "kinds of candidates without improvement that end the search")
      .at_least(1);
  add(integer, "min_train_micro_batch_size_per_gpu", 1, "smallest micro-batch of a candidate")
      .at_least(1);
  add(integer, "max_train_micro_batch_size_per_gpu", 1024, "largest micro-batch of a candidate")
      .at_least(1);
  add(choice, "tuner_type", "model_based",
      "gridsearch: every candidate that fits by the plan; else few of them, ordered by the plan")
      .one_of({"gridsearch", "random", "model_based"});
  auto const add_without_effect = [&t](char const* effect, char const* members) {
    add_members(t, "autotuning", "search for a configuration", effect, members);
  };
  add_without_effect("no effect: the result is in tuning.json and tuned.json of output_dir",
                     "s:results_dir s:exps_dir");
  add_without_effect(
      "no effect: the batch of a step is the same in all candidates, so that all metrics agree",
      "s:metric s:metric_path i:max_train_batch_size i:min_train_batch_size");
  add_without_effect("no effect: the plan orders and prunes the candidates",
                     "b:fast i:num_tuning_micro_batch_sizes");
  add_without_effect("no effect: the run knows its model and options",
                     "j:arg_mappings j:model_info s:model_info_path i:mp_size");
}

/// No technique of the tree has {"enabled": true}.
bool switches_nothing_on(ConfigTree const& value) {
  if (value.is_bool()) return !value.as_bool();
  if (value.is_object())
    return std::ranges::all_of(value.as_object(), [](auto const& member) {
      return member.first != "enabled"
                 ? !member.second.is_object() || switches_nothing_on(member.second)
                 : member.second == ConfigTree(false);
    });
  return false;
}

/// One rank per model: DeepSpeed divides a model from sizes above 1 on, and into pipeline stages
/// only a PipelineModule.
bool divides_nothing(ConfigTree const& value) {
  if (value.is_bool()) return !value.as_bool();
  if (!value.is_object()) return false;
  return std::ranges::all_of(value.as_object(), [](auto const& member) {
    auto const& [name, size] = member;
    if (name == "tp") return divides_nothing(size);
    bool const divides = name == "autotp_size" || name == "tp_size" || name == "stages";
    return !divides || size.is_null() || size == ConfigTree("auto") ||
           (size.is_number() && size.as_double() <= 1.0);
  });
}

bool quantizes_nothing(ConfigTree const& value) {
  if (!value.is_object()) return false;
  auto const* enabled = value.find("enabled");
  if (enabled && *enabled == ConfigTree(false)) return true;
  return std::ranges::all_of(value.as_object(), [](auto const& member) {
    bool const settings =
        member.first == "quantized_initialization" || member.first == "post_init_quant";
    return !settings || (member.second.is_object() && member.second.size() == 0);
  });
}

bool is_dense(ConfigTree const& value) {
  auto const* mode = value.is_object() ? value.find("mode") : nullptr;
  return mode && *mode == ConfigTree("dense");
}

void add_model_features(OptionTable& t) {
  char const* const uncompressed = "remove the block; train without compression";
  add_feature(t, {"quantize_training", "enabled", "quantization", uncompressed,
                  "j:quantize_bits j:quantize_schedule i:quantize_groups j:fp16_mixed_quantize "
                  "b:quantize_verbose b:quantizer_kernel s:quantize_type s:rounding"});
  t.add(json, "compression_training", {}, "pruning and quantization")
      .refuse(uncompressed)
      .unless(switches_nothing_on);
  t.add(json, "weight_quantization", {}, "quantization")
      .refuse(uncompressed)
      .unless(quantizes_nothing);
  t.add(json, "sparse_attention", {}, "sparse attention")
      .refuse("remove the block; attention is dense")
      .unless(is_dense);
  add_feature(t, {"progressive_layer_drop", "enabled", "layer dropping", "remove the block",
                  "r:theta r:gamma"});
  add_feature(t, {"eigenvalue", "enabled", "eigenvalues for quantization", "remove the block",
                  "b:verbose i:max_iter r:tol r:stability i:gas_boundary_resolution s:layer_name "
                  "i:layer_num"});
  add_feature(t, {"hybrid_engine", "enabled", "training and inference together", "remove the block",
                  "i:max_out_tokens i:inference_tp_size b:release_inference_cache "
                  "b:pin_parameters i:tp_gather_partition_size b:enable_cuda_graph"});
  add_feature(t, {"compile", "deepcompile", "compiled graphs",
                  "remove the block; kernels are compiled when Tessera is built",
                  "b:autoep_non_moe b:free_activation i:free_activation_threshold "
                  "b:offload_activation b:offload_activation_pin_memory b:offload_opt_states "
                  "b:double_buffer b:symmetric_memory b:debug_log b:offload_parameters "
                  "b:sync_before_reduce b:sync_after_reduce b:sync_before_allgather "
                  "b:sync_after_allgather b:keep_int_input_tensors b:keep_all_input_tensors "
                  "l:passes"});
}

void add_parallelism(OptionTable& t) {
  char const* const data_only = "only data parallelism is supported; remove the block";
  for (char const* name : {"tensor_parallel", "pipeline"})
    t.add(json, name, {}, "other kinds of parallelism").refuse(data_only).unless(divides_nothing);
  add_feature(t, {"expert_parallel", "enabled", "expert parallelism", data_only,
                  "i:autoep_size i:expert_tensor_parallel_size"});
  for (char const* name : {"sequence_parallel_size", "data_parallel_size"})
    t.add(integer, name, 1, "other kinds of parallelism")
        .refuse("every rank is a data-parallel rank; remove it");
  for (char const* name : {"use_data_before_expert_parallelism", "graph_harvesting"})
    t.add(boolean, name, false, "option of other models and devices").refuse("remove it");
}

}  // namespace

void add_deepspeed_blocks(OptionTable& t) {
  add_aio(t);
  add_checkpoint(t);
  add_observation(t);
  t.group("Other features of DeepSpeed");
  add_batch_features(t);
  add_autotuning(t);
  add_data_features(t);
  add_model_features(t);
  add_parallelism(t);
}

}  // namespace tessera::config::detail
