#include "detail/accelerate.hpp"

#include <yaml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>

#include "detail/number_text.hpp"
#include "tessera/config/option_table.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

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
  t.add(integer, d + "zero_stage", 2, "ZeRO stage").between(0, 3);
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

OptionTable build_accelerate_table() {
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
  static OptionTable const table = build_accelerate_table();
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

namespace {

constexpr int max_depth = 64;

/// An event of libyaml; deleted with its owner.
class Event {
 public:
  explicit Event(yaml_parser_t& parser) : read_(yaml_parser_parse(&parser, &event_) != 0) {}
  ~Event() {
    if (read_) yaml_event_delete(&event_);
  }
  Event(Event const&) = delete;
  Event& operator=(Event const&) = delete;
  bool ok() const { return read_; }
  yaml_event_type_t type() const { return event_.type; }
  yaml_event_t const& get() const { return event_; }

 private:
  yaml_event_t event_{};
  bool read_;
};

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (auto const word : words)
    if (text == word) return true;
  return false;
}

/// A scalar without quotes.
ConfigTree plain_value(std::string const& text) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return {};
  if (is_one_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return true;
  if (is_one_of(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}))
    return false;
  ConfigTree number = number_from(text);
  if (!number.is_null() && std::isfinite(number.as_double())) return number;
  return text;
}

class YamlReader {
 public:
  YamlReader(std::string_view text, std::string const& source) : source_(source) {
    TESSERA_VALIDATE(yaml_parser_initialize(&parser_) != 0, InternalError,
                     "libyaml has no memory for a parser");
    yaml_parser_set_input_string(&parser_, reinterpret_cast<unsigned char const*>(text.data()),
                                 text.size());
  }
  ~YamlReader() { yaml_parser_delete(&parser_); }
  YamlReader(YamlReader const&) = delete;
  YamlReader& operator=(YamlReader const&) = delete;

  ConfigTree read() {
    expect(YAML_STREAM_START_EVENT);
    Event const begin(parser_);
    check(begin);
    if (begin.type() == YAML_STREAM_END_EVENT) return {};
    ConfigTree out = next(0);
    expect(YAML_DOCUMENT_END_EVENT);
    Event const end(parser_);
    check(end);
    if (end.type() != YAML_STREAM_END_EVENT) fail(end, "the file has more than one document");
    return out;
  }

 private:
  [[noreturn]] void fail_at(yaml_mark_t const& mark, std::string const& what) const {
    throw DataError(concat(source_, " is not valid YAML: line ", mark.line + 1, ", column ",
                           mark.column + 1, ": ", what));
  }
  [[noreturn]] void fail(Event const& event, std::string const& what) const {
    fail_at(event.get().start_mark, what);
  }
  void check(Event const& event) const {
    if (event.ok()) return;
    bool const marked = parser_.problem_mark.line > 0 || parser_.problem_mark.column > 0;
    fail_at(marked ? parser_.problem_mark : parser_.mark,
            parser_.problem ? parser_.problem : "it cannot be read");
  }
  void expect(yaml_event_type_t type) {
    Event const event(parser_);
    check(event);
    if (event.type() != type) fail(event, "unexpected content");
  }

  ConfigTree next(int depth) {
    Event const event(parser_);
    check(event);
    return value(event, depth);
  }

  ConfigTree value(Event const& event, int depth) {
    if (depth > max_depth) fail(event, concat("nested deeper than ", max_depth, " levels"));
    switch (event.type()) {
      case YAML_SCALAR_EVENT:
        return scalar(event);
      case YAML_SEQUENCE_START_EVENT:
        return sequence(depth);
      case YAML_MAPPING_START_EVENT:
        return mapping(depth);
      default:
        fail(event, "anchors and aliases are not supported; write the value out");
    }
  }

  static std::string text_of(Event const& event) {
    auto const& scalar = event.get().data.scalar;
    return {reinterpret_cast<char const*>(scalar.value), scalar.length};
  }
  static ConfigTree scalar(Event const& event) {
    bool const plain = event.get().data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return plain ? plain_value(text_of(event)) : ConfigTree(text_of(event));
  }

  ConfigTree sequence(int depth) {
    ConfigTree::Array items;
    for (;;) {
      Event const event(parser_);
      check(event);
      if (event.type() == YAML_SEQUENCE_END_EVENT) return items;
      items.push_back(value(event, depth + 1));
    }
  }

  ConfigTree mapping(int depth) {
    auto out = ConfigTree::object();
    for (;;) {
      Event const event(parser_);
      check(event);
      if (event.type() == YAML_MAPPING_END_EVENT) return out;
      if (event.type() != YAML_SCALAR_EVENT) fail(event, "a key must be text");
      std::string const key = text_of(event);
      if (out.contains(key)) fail(event, concat("the key '", key, "' appears twice; remove one"));
      out.set(key, next(depth + 1));
    }
  }

  yaml_parser_t parser_{};
  std::string const& source_;
};

}  // namespace

ConfigTree parse_yaml(std::string_view text, std::string const& source) {
  return YamlReader(text, source).read();
}

ConfigTree read_yaml(std::filesystem::path const& file) {
  constexpr std::size_t max_bytes = std::size_t{1} << 20;
  std::ifstream in(file, std::ios::binary);
  TESSERA_VALIDATE(in && !std::filesystem::is_directory(file), IoError,
                   with_errno("cannot read " + file.string(), in ? EISDIR : errno));
  std::string text(max_bytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  TESSERA_VALIDATE(text.size() <= max_bytes, DataError, file.string(),
                   " has more than 1 MiB; a configuration is smaller");
  require_narrow(text, file.string());
  return parse_yaml(text, file.string());
}

namespace {

using enum OptionType;

struct Strategy {
  char const* name;
  std::int64_t stage;
  bool within_nodes;
};
constexpr Strategy strategies[] = {{"full_shard", 3, false},
                                   {"shard_grad_op", 2, false},
                                   {"no_shard", 0, false},
                                   {"hybrid_shard", 3, true},
                                   {"hybrid_shard_zero2", 2, true}};

OptionTable build_fsdp_table() {
  OptionTable t;
  t.group("FSDP");
  t.add(json, "sharding_strategy", {}, "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD")
      .shown_as("a strategy");
  t.add(json, "reshard_after_forward", {},
        "true or full_shard: stage 3; false or shard_grad_op: stage 2")
      .shown_as("true, false or a strategy");
  t.add(boolean, "activation_checkpointing", false, "the same as --gradient_checkpointing");
  t.add(boolean, "activation_checkpointing_offload", false, "activation checkpoints in host memory")
      .refuse("leave it out, or use activation_checkpointing.cpu_checkpointing of DeepSpeed");
  for (char const* name : {"cpu_offload", "offload_params"})
    t.add(boolean, name, false, "keep parameters in host memory");
  t.add(boolean, "xla", false, "FSDP of PyTorch/XLA").refuse("leave it out");
  for (char const* name : {"xla_fsdp_v2", "xla_fsdp_grad_ckpt"})
    t.add(boolean, name, false, "FSDP of PyTorch/XLA").hint("no effect without xla");
  t.add(json, "xla_fsdp_settings", {}, "FSDP of PyTorch/XLA").hint("no effect without xla");
  t.add(integer, "version", 2, "version of FSDP").hint("no effect: there is one engine");
  char const* const own_units = "no effect: a ZeRO unit is a transformer block";
  t.add(integer, "min_num_params", 0, "size of a wrapped module").hint(own_units);
  t.add(list, "transformer_layer_cls_to_wrap", {}, "classes to wrap").hint(own_units);
  t.add(string, "auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "what to wrap").hint(own_units);
  char const* const prefetch =
      "no effect: units are prefetched in forward and backward, as far as their buffers reach";
  for (char const* name : {"backward_prefetch", "backward_prefetch_policy"})
    t.add(string, name, "NO_PREFETCH", "prefetch in backward").hint(prefetch);
  t.add(boolean, "forward_prefetch", false, "prefetch in forward").hint(prefetch);
  t.add(boolean, "limit_all_gathers", true, "limit the all-gathers in flight").hint(prefetch);
  for (char const* name : {"use_orig_params", "sync_module_states"})
    t.add(boolean, name, true, "how modules are wrapped")
        .hint("no effect: every rank fills its own shard");
  t.add(boolean, "cpu_ram_efficient_loading", false, "load weights on one rank")
      .hint("no effect: every rank reads only its own shard");
  t.add(string, "state_dict_type", "FULL_STATE_DICT", "form of checkpoints")
      .hint("no effect: checkpoints are sharded, and the trained model is a Hugging Face model");
  t.convert_values("");
  return t;
}

/// PyTorch's name of the second hybrid strategy begins with '_'.
std::optional<Strategy> strategy_of(std::string const& name) {
  for (auto const& strategy : strategies)
    if (lower_case(name) == strategy.name || lower_case(name) == concat('_', strategy.name))
      return strategy;
  return std::nullopt;
}

/// Reads --fsdp and the keys of --fsdp_config one by one.
class FsdpReader {
 public:
  explicit FsdpReader(TrainingArguments const& arguments) : arguments_(arguments) {}

  std::optional<FsdpChoice> read() {
    auto const words = words_of(arguments_.values.value(argument_table(), "fsdp"));
    if (words.empty()) {
      TESSERA_VALIDATE(arguments_.fsdp_config.is_null() || arguments_.fsdp_config.size() == 0,
                       UsageError,
                       "--fsdp_config has no effect without --fsdp; add --fsdp "
                       "full_shard or leave it out");
      return std::nullopt;
    }
    for (auto const& word : words) read_word(word);
    read_config();
    auto const chosen = strategy_.value_or(strategies[0]);
    choice_.stage = chosen.stage;
    choice_.within_nodes = chosen.within_nodes;
    choice_.notes.insert(
        choice_.notes.begin(),
        concat(
            "fsdp: ", chosen.name, " is ZeRO stage ", chosen.stage,
            chosen.within_nodes ? " within each node; gradients are summed over the nodes" : ""));
    return choice_;
  }

 private:
  /// Words from "full_shard auto_wrap", a list of words, or true.
  static std::vector<std::string> words_of(ConfigTree const& value) {
    std::vector<std::string> out;
    auto const split = [&out](std::string const& text) {
      std::istringstream in(text);
      for (std::string word; in >> word;) out.push_back(word);
    };
    if (value.is_bool() && value.as_bool()) out.emplace_back("full_shard");
    if (value.is_string()) split(value.as_string());
    if (value.is_array())
      for (auto const& item : value.as_array()) split(item.is_string() ? item.as_string() : "?");
    if (out.size() == 1 && (lower_case(out[0]) == "true" || lower_case(out[0]) == "false"))
      out = lower_case(out[0]) == "true" ? std::vector<std::string>{"full_shard"}
                                         : std::vector<std::string>{};
    return out;
  }

  void choose(Strategy const& strategy, char const* where) {
    bool const same = strategy_ && strategy_->stage == strategy.stage &&
                      strategy_->within_nodes == strategy.within_nodes;
    TESSERA_VALIDATE(!strategy_ || same, UsageError, where, " says ", strategy.name, ", but ",
                     strategy_ ? strategy_->name : "", " is given too; leave one out");
    strategy_ = strategy;
  }

  void read_word(std::string const& word) {
    if (auto const strategy = strategy_of(word)) return choose(*strategy, "--fsdp");
    if (lower_case(word) == "offload") {
      choice_.offloads = true;
      return;
    }
    if (lower_case(word) == "auto_wrap") {
      choice_.notes.emplace_back(
          "fsdp: auto_wrap has no effect, a ZeRO unit is a transformer block");
      return;
    }
    throw UsageError(concat("--fsdp has the word '", word,
                            "'; known are full_shard, shard_grad_op, no_shard, hybrid_shard, "
                            "hybrid_shard_zero2, offload and auto_wrap"));
  }

  void read_config() {
    if (arguments_.fsdp_config.is_null()) return;
    auto config = ConfigTree::object();
    for (auto const& [name, value] : arguments_.fsdp_config.as_object())
      config.set(name.starts_with("fsdp_") ? name.substr(5) : name, value);
    auto const keys = parse_flat(fsdp_table(), config, "fsdp_config");
    for (auto const& hint : keys.hints(fsdp_table()))
      choice_.notes.push_back("fsdp_config." + hint);
    for (char const* name : {"cpu_offload", "offload_params"})
      if (keys.value(fsdp_table(), name) == ConfigTree(true)) choice_.offloads = true;
    choice_.activation_checkpointing =
        keys.value(fsdp_table(), "activation_checkpointing") == ConfigTree(true);
    for (char const* name : {"sharding_strategy", "reshard_after_forward"})
      if (auto const& given = keys.value(fsdp_table(), name); !given.is_null())
        read_strategy(name, given);
  }

  void read_strategy(char const* name, ConfigTree const& given) {
    std::string text = given.is_string() ? lower_case(given.as_string()) : lower_case(given.dump());
    if (text == "auto") return;
    constexpr char const* by_number[] = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
                                         "hybrid_shard_zero2"};  // torch's ShardingStrategy from 1
    if (text.size() == 1 && text[0] >= '1' && text[0] <= '5') text = by_number[text[0] - '1'];
    if (text == "true") text = "full_shard";
    if (text == "false") text = "shard_grad_op";
    auto const strategy = strategy_of(text);
    TESSERA_VALIDATE(strategy, ConfigError, "fsdp_config.", name, " is ", given.dump(),
                     "; it must be FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or "
                     "HYBRID_SHARD_ZERO2");
    // --fsdp true or full_shard is the default, which the key refines
    if (strategy_ && strategy_->stage == 3 && !strategy_->within_nodes) strategy_.reset();
    // hybrid_shard with reshard_after_forward false is _hybrid_shard_zero2
    if (strategy_ && strategy_->within_nodes && !strategy->within_nodes && strategy->stage >= 2) {
      strategy_ = strategy_of(strategy->stage == 3 ? "hybrid_shard" : "hybrid_shard_zero2");
      return;
    }
    choose(*strategy, "fsdp_config");
  }

  TrainingArguments const& arguments_;
  std::optional<Strategy> strategy_;
  FsdpChoice choice_;
};

}  // namespace

OptionTable const& fsdp_table() {
  static OptionTable const table = build_fsdp_table();
  return table;
}

std::optional<FsdpChoice> resolve_fsdp(TrainingArguments const& arguments) {
  return FsdpReader(arguments).read();
}

}  // namespace tessera::config::detail
