#include "detail/accelerate.hpp"

#include <algorithm>
#include <string_view>

#include "detail/fsdp.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using enum OptionType;

char const* const by_launcher = "no effect: srun or mpirun starts the ranks";

/// {ipex: false, use_xpu: false}, or sizes of parallelism of 1.
bool is_off(ConfigTree const& block) {
  return block.is_object() && std::ranges::all_of(block.as_object(), [](auto const& member) {
           auto const& [name, value] = member;
           return value != ConfigTree(true) &&
                  !(name.ends_with("_size") && value.is_number() && value.as_double() > 1.0);
         });
}

void add_launch(OptionTable& t) {
  t.add(choice, "compute_environment", "LOCAL_MACHINE", "where the job runs")
      .one_of({"LOCAL_MACHINE"})
      .except("AMAZON_SAGEMAKER", "use a machine or a cluster of your own");
  t.add(integer, "num_processes", {}, "ranks").at_least(1).hint(by_launcher);
  for (char const* name : {"num_machines", "machine_rank", "main_process_port"})
    t.add(integer, name, {}, "how ranks find each other").hint(by_launcher);
  for (char const* name : {"main_process_ip", "main_training_function", "rdzv_backend",
                           "deepspeed_hostfile", "gpu_ids"})
    t.add(json, name, {}, "how ranks find each other").shown_as("text").hint(by_launcher);
  for (char const* name :
       {"same_network", "enable_cpu_affinity", "debug", "tpu_use_cluster", "tpu_use_sudo"})
    t.add(boolean, name, {}, "how ranks are started").hint(by_launcher);
  for (char const* name : {"tpu_env", "tpu_vm", "tpu_name", "tpu_zone", "command_file", "commands"})
    t.add(json, name, {}, "how `accelerate tpu-config` reaches TPUs")
        .shown_as("text")
        .hint("no effect: no TPUs are used");
  t.add(json, "mpirun_config", {}, "how ranks are started").shown_as("object").hint(by_launcher);
  t.add(json, "downcast_bf16", {}, "precision of TPUs").shown_as("text").hint("no effect");
  t.add(json, "dynamo_config", {}, "compiler")
      .shown_as("object")
      .hint("no effect: all kernels are compiled when Tessera is built");
  t.add(json, "megatron_lm_config", {}, "Megatron-LM")
      .shown_as("object")
      .hint("no effect without distributed_type MEGATRON_LM");
  t.add(json, "fp8_config", {}, "recipe of fp8")
      .shown_as("object")
      .hint("no effect without mixed_precision fp8");
  for (char const* name : {"ipex_config", "parallelism_config", "tp_config"})
    t.add(json, name, {}, "other kinds of parallelism and devices")
        .shown_as("object")
        .refuse("remove the block")
        .unless(is_off);
}

void add_deepspeed(OptionTable& t) {
  std::string const d = "deepspeed_config.";
  t.add(path, d + "deepspeed_config_file", {}, "a DeepSpeed JSON; the same as --deepspeed");
  t.add(integer, d + "zero_stage", 2, "ZeRO stage").at_least(0).at_most(3);
  t.add(integer, d + "gradient_accumulation_steps", {}, "micro-steps per optimizer step")
      .at_least(1);
  t.add(real, d + "gradient_clipping", {}, "clip the global gradient norm").at_least(0);
  t.add(boolean, d + "zero3_save_16bit_model", false,
        "stage3_gather_16bit_weights_on_model_save of DeepSpeed");
  t.add(boolean, d + "zero3_init_flag", {}, "build the model in shards")
      .hint("no effect: every rank builds only its own shard");
  for (char const* name : {"offload_optimizer_device", "offload_param_device"})
    t.add(choice, d + name, "none", "memory space; as device of DeepSpeed's offload blocks")
        .one_of({"none", "cpu", "nvme"});
  for (char const* name : {"offload_optimizer_nvme_path", "offload_param_nvme_path"})
    t.add(json, d + name, {}, "directory on the NVMe disk").shown_as("path");
  for (char const* name : {"deepspeed_multinode_launcher", "deepspeed_hostfile",
                           "deepspeed_inclusion_filter", "deepspeed_exclusion_filter"})
    t.add(string, d + name, {}, "how ranks are started").hint(by_launcher);
  t.add(json, d + "deepspeed_moe_layer_cls_names", {}, "expert layers")
      .shown_as("words")
      .hint("no effect: the models have no experts");
}

OptionTable build() {
  OptionTable t;
  t.group("Accelerate");
  auto& type = t.add(choice, "distributed_type", "NO", "how the model is distributed")
                   .one_of({"NO", "MULTI_CPU", "MULTI_GPU", "DEEPSPEED", "FSDP"});
  for (char const* name : {"MEGATRON_LM", "XLA", "TPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA",
                           "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU", "MULTI_NEURON"})
    type.except(name, "use MULTI_GPU, DEEPSPEED or FSDP");
  t.add(choice, "mixed_precision", "no", "working precision")
      .one_of({"no", "fp16", "bf16"})
      .except("fp8", "use bf16, and give --fp8 true to tessera-train");
  t.add(boolean, "use_cpu", false, "compute on the host");
  add_launch(t);
  add_deepspeed(t);
  for (auto const& option : fsdp_table().options()) {
    Option& copy = t.add(option.type, "fsdp_config.fsdp_" + option.name, {}, option.meaning);
    copy.shown_as(option.label);
  }
  t.convert_values("");
  return t;
}

/// PyYAML reads an unquoted no as false.
void restore_words(ConfigTree& document) {
  for (char const* name : {"mixed_precision", "distributed_type", "dynamo_backend"})
    if (auto const* value = document.find(name); value && *value == ConfigTree(false))
      document.set(name, std::string_view(name) == "mixed_precision" ? "no" : "NO");
}

/// Translates keys of old files as Accelerate 1.15 does (BaseConfig.process_config): fp16 is
/// mixed_precision where that is absent, dynamo_backend is a member of dynamo_config.
void translate_old_keys(ConfigTree& document) {
  if (auto const* fp16 = document.find("fp16")) {
    bool const on = *fp16 == ConfigTree(true);
    if (!document.contains("mixed_precision")) document.set("mixed_precision", on ? "fp16" : "no");
    document.erase("fp16");
  }
  if (auto const* backend = document.find("dynamo_backend")) {
    auto config = ConfigTree::object();
    if (*backend != ConfigTree("NO")) config.set("dynamo_backend", *backend);
    document.set("dynamo_config", config.size() > 0 ? config : ConfigTree());
    document.erase("dynamo_backend");
  }
}

ConfigTree deepspeed_tree(OptionValues const& keys) {
  std::string const d = "deepspeed_config.";
  auto const value = [&](char const* name) -> ConfigTree const& {
    return keys.value(accelerate_table(), d + name);
  };
  auto zero = ConfigTree::object().set("stage", value("zero_stage"));
  if (value("zero3_save_16bit_model") == ConfigTree(true))
    zero.set("stage3_gather_16bit_weights_on_model_save", true);
  for (std::string const block : {"offload_optimizer", "offload_param"}) {
    auto const& device = value((block + "_device").c_str());
    if (device == ConfigTree("none")) continue;
    auto offload = ConfigTree::object().set("device", device);
    if (auto const& path = value((block + "_nvme_path").c_str()); !path.is_null())
      offload.set("nvme_path", path);
    zero.set(block, offload);
  }
  auto tree = ConfigTree::object().set("zero_optimization", zero);
  for (char const* name : {"gradient_accumulation_steps", "gradient_clipping"})
    if (keys.given(d + name)) tree.set(name, value(name));
  for (char const* name : {"fp16", "bf16"})
    tree.set(name, ConfigTree::object().set("enabled", "auto"));
  return tree;
}

/// The members of fsdp_config; fsdp_table() checks them.
ConfigTree fsdp_tree(ConfigTree const& document) {
  auto const* block = document.find("fsdp_config");
  return block && block->is_object() ? *block : ConfigTree::object();
}

}  // namespace

OptionTable const& accelerate_table() {
  static OptionTable const table = build();
  return table;
}

AccelerateConfig read_accelerate(ConfigTree const& given, std::string const& source) {
  ConfigTree document = given;
  if (document.is_object()) {
    restore_words(document);
    translate_old_keys(document);
  }
  OptionValues const keys = parse_nested(accelerate_table(), document, source);
  auto const text = [&](char const* name) {
    return keys.value(accelerate_table(), name).as_string();
  };
  AccelerateConfig out;
  auto const set = [&out](char const* name, ConfigTree value) {
    out.values.entries[name] = {std::move(value), Origin::accelerate};
  };
  for (auto const& hint : keys.hints(accelerate_table()))
    out.notes.push_back(concat(source, ": ", hint));
  if (text("mixed_precision") != "no")
    set(text("mixed_precision") == "fp16" ? "fp16" : "bf16", true);
  if (keys.value(accelerate_table(), "use_cpu").as_bool()) set("use_cpu", true);
  std::string const type = text("distributed_type");
  if (type == "FSDP") {
    set("fsdp", true);
    set("fsdp_config", fsdp_tree(document));
  }
  if (type != "DEEPSPEED") return out;
  std::string const file = "deepspeed_config.deepspeed_config_file";
  set("deepspeed", keys.given(file) ? keys.value(accelerate_table(), file) : deepspeed_tree(keys));
  return out;
}

}  // namespace tessera::config::detail
