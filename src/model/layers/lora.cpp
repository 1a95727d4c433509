#include "tessera/model/layers/lora.hpp"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::model {
namespace {

std::regex compiled(std::string const& pattern, char const* option) {
  try {
    return std::regex(pattern);
  } catch (std::regex_error const& e) {
    throw ConfigError(
        concat(option, " '", pattern, "' is not a regular expression: ", e.what(),
               "; give one that matches complete names, such as '.*\\.h\\.[0-5]\\..*'"));
  }
}

bool ends_with_name(std::string const& layer, std::string const& name) {
  return layer == name || layer.ends_with("." + name);
}

/// Members of a configuration that change nothing here, whatever they say.
std::set<std::string> const& without_effect() {
  static std::set<std::string> const names{"auto_mapping",
                                           "base_model_name_or_path",
                                           "fan_in_fan_out",
                                           "inference_mode",
                                           "lora_alpha",
                                           "lora_dropout",
                                           "megatron_core",
                                           "peft_type",
                                           "peft_version",
                                           "qalora_group_size",
                                           "r",
                                           "revision",
                                           "target_modules",
                                           "task_type",
                                           "use_rslora"};
  return names;
}

bool is_off(ConfigTree const& value) {
  return value.is_null() || value == ConfigTree(false) || value == ConfigTree("none") ||
         ((value.is_array() || value.is_object()) && value.size() == 0);
}

void refuse_unsupported(ConfigTree const& config) {
  std::vector<std::string> unsupported;
  for (auto const& [name, value] : config.as_object())
    if (!without_effect().contains(name) && name != "init_lora_weights" && !is_off(value))
      unsupported.push_back(concat(name, " is ", value.dump()));
  TESSERA_VALIDATE(unsupported.empty(), ConfigError, "adapter_config.json: ", join(unsupported),
                   "; of PEFT's adapters plain LoRA is supported (r, lora_alpha, lora_dropout, "
                   "target_modules, use_rslora)");
  // others than these change the base weights when PEFT loads the adapter
  ConfigTree const* const init = config.find("init_lora_weights");
  TESSERA_VALIDATE(!init || init->is_bool() || *init == ConfigTree("gaussian"), ConfigError,
                   "adapter_config.json: init_lora_weights is ", init->dump(),
                   "; supported are true, false and \"gaussian\"");
  std::string const type = config.get_string("peft_type", "");
  TESSERA_VALIDATE(type == "LORA", ConfigError, "adapter_config.json: peft_type is '", type,
                   "'; supported is LORA");
  std::string const task = config.contains("task_type") && config.at("task_type").is_string()
                               ? config.at("task_type").as_string()
                               : "CAUSAL_LM";
  TESSERA_VALIDATE(task == "CAUSAL_LM", ConfigError, "adapter_config.json: task_type is '", task,
                   "'; supported is CAUSAL_LM");
}

void check_values(LoraOptions const& options) {
  TESSERA_VALIDATE(options.rank >= 1, ConfigError, "LoRA's r is ", options.rank,
                   "; it must be at least 1");
  TESSERA_VALIDATE(options.alpha > 0.0 && std::isfinite(options.alpha), ConfigError,
                   "lora_alpha is ", options.alpha, "; it must be positive");
  TESSERA_VALIDATE(options.dropout >= 0.0 && options.dropout < 1.0, ConfigError, "lora_dropout is ",
                   options.dropout, "; it must be in [0, 1)");
}

}  // namespace

double LoraOptions::scale() const {
  double const r = rank;
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

bool LoraOptions::is_target(std::string const& layer) const {
  if (!pattern.empty()) return std::regex_match(layer, compiled(pattern, "target_modules"));
  return std::any_of(targets.begin(), targets.end(), [&](std::string const& target) {
    return target == "all-linear" || ends_with_name(layer, target);
  });
}

LoraOptions read_adapter_config(ConfigTree const& config) {
  TESSERA_VALIDATE(config.is_object(), ConfigError, "adapter_config.json is ", config.type_name(),
                   "; it must be an object");
  refuse_unsupported(config);
  LoraOptions out;
  out.rank = static_cast<int>(config.get_int("r", out.rank));
  out.alpha = config.get_double("lora_alpha", out.alpha);
  out.dropout = config.get_double("lora_dropout", out.dropout);
  out.rank_stabilized = config.get_bool("use_rslora", false);
  out.transposed = config.get_bool("fan_in_fan_out", false);
  if (auto const* targets = config.find("target_modules"); targets && targets->is_array()) {
    for (auto const& name : targets->as_array()) out.targets.push_back(name.as_string());
    std::sort(out.targets.begin(), out.targets.end());
  } else if (targets && targets->is_string()) {
    if (targets->as_string() == "all-linear")
      out.targets = {"all-linear"};
    else
      out.pattern = targets->as_string();
  }
  check_values(out);
  return out;
}

ConfigTree adapter_config(LoraOptions const& options, std::string const& base) {
  ConfigTree out = ConfigTree::parse(R"({
    "alpha_pattern": {}, "auto_mapping": null, "bias": "none", "inference_mode": true,
    "init_lora_weights": true, "layers_pattern": null, "layers_to_transform": null,
    "loftq_config": {}, "megatron_config": null, "megatron_core": "megatron.core",
    "modules_to_save": null, "peft_type": "LORA", "rank_pattern": {}, "revision": null,
    "task_type": "CAUSAL_LM", "use_dora": false})",
                                     "adapter configuration");
  out.set("base_model_name_or_path", base.empty() ? ConfigTree() : ConfigTree(base))
      .set("fan_in_fan_out", options.transposed)
      .set("lora_dropout", options.dropout)
      .set("r", options.rank)
      .set("use_rslora", options.rank_stabilized);
  if (options.alpha == std::floor(options.alpha))
    out.set("lora_alpha", static_cast<std::int64_t>(options.alpha));
  else
    out.set("lora_alpha", options.alpha);
  ConfigTree::Array targets;
  for (auto const& name : options.targets) targets.emplace_back(name);
  bool const is_text =
      !options.pattern.empty() || options.targets == std::vector<std::string>{"all-linear"};
  if (is_text)
    out.set("target_modules", options.pattern.empty() ? "all-linear" : options.pattern);
  else
    out.set("target_modules", std::move(targets));
  return out;
}

void freeze(std::vector<memory::UnitSpec>& units, std::string const& pattern) {
  auto const expression = compiled(pattern, "--frozen_parameters");
  bool matches = false;
  for (auto& unit : units)
    for (auto& parameter : unit.parameters) {
      if (!std::regex_match(parameter.name, expression)) continue;
      parameter.trains = false;
      matches = true;
    }
  TESSERA_VALIDATE(matches, ConfigError, "--frozen_parameters '", pattern,
                   "' matches no parameter; it must match complete names, such as ",
                   units.empty() || units[0].parameters.empty() ? "" : units[0].parameters[0].name);
}

}  // namespace tessera::model
