#include "detail/accelerate.hpp"

#include <yaml.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <string_view>

#include "detail/fsdp.hpp"
#include "detail/number_text.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using enum OptionType;

char const* const by_launcher = "no effect: srun or mpirun starts the ranks";

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
  t.add(list, "tpu_env", {}, "environment of TPUs").hint(by_launcher);
  t.add(json, "downcast_bf16", {}, "precision of TPUs").shown_as("text").hint("no effect");
  t.add(json, "dynamo_config", {}, "compiler")
      .shown_as("object")
      .hint("no effect: all kernels are compiled when Tessera is built");
  for (char const* name : {"megatron_lm_config", "fp8_config", "mpirun_config", "ipex_config",
                           "parallelism_config", "tp_config"})
    t.add(json, name, {}, "other kinds of parallelism and precision")
        .shown_as("object")
        .refuse("remove the block");
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
ConfigTree with_words(ConfigTree document) {
  for (char const* name : {"mixed_precision", "distributed_type"})
    if (auto const* value = document.find(name); value && *value == ConfigTree(false))
      document.set(name, std::string_view(name) == "distributed_type" ? "NO" : "no");
  return document;
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
  ConfigTree const document = with_words(given);
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

class Reader {
 public:
  Reader(std::string_view text, std::string const& source) : source_(source) {
    TESSERA_VALIDATE(yaml_parser_initialize(&parser_) != 0, InternalError,
                     "libyaml has no memory for a parser");
    yaml_parser_set_input_string(&parser_, reinterpret_cast<unsigned char const*>(text.data()),
                                 text.size());
  }
  ~Reader() { yaml_parser_delete(&parser_); }
  Reader(Reader const&) = delete;
  Reader& operator=(Reader const&) = delete;

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
  return Reader(text, source).read();
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
  return parse_yaml(text, file.string());
}

}  // namespace tessera::config::detail
