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

/// Members of a configuration that are read, or change nothing here, whatever they say.
std::set<std::string> const& known_members() {
  static std::set<std::string> const names{"auto_mapping",
                                           "base_model_name_or_path",
                                           "ensure_weight_tying",
                                           "fan_in_fan_out",
                                           "inference_mode",
                                           "lora_alpha",
                                           "lora_dropout",
                                           "megatron_core",
                                           "modules_to_save",
                                           "peft_type",
                                           "peft_version",
                                           "qalora_group_size",
                                           "r",
                                           "revision",
                                           "target_modules",
                                           "task_type",
                                           "use_dora",
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
    if (!known_members().contains(name) && name != "init_lora_weights" && !is_off(value))
      unsupported.push_back(concat(name, " is ", value.dump()));
  TESSERA_VALIDATE(unsupported.empty(), ConfigError, "adapter_config.json: ", join(unsupported),
                   "; of PEFT's adapters LoRA and DoRA are supported (r, lora_alpha, lora_dropout, "
                   "target_modules, use_rslora, use_dora, modules_to_save)");
  std::string const type = config.get_string("peft_type", "");
  TESSERA_VALIDATE(type == "LORA", ConfigError, "adapter_config.json: peft_type is '", type,
                   "'; supported is LORA");
  std::string const task = config.contains("task_type") && config.at("task_type").is_string()
                               ? config.at("task_type").as_string()
                               : "CAUSAL_LM";
  TESSERA_VALIDATE(task == "CAUSAL_LM", ConfigError, "adapter_config.json: task_type is '", task,
                   "'; supported is CAUSAL_LM");
}

/// Others than these choose A and B from the base's weights or from data; most subtract B A from
/// the base, again when PEFT loads the adapter.
LoraInit read_init(ConfigTree const& config) {
  ConfigTree const* const init = config.find("init_lora_weights");
  if (!init || *init == ConfigTree(true)) return LoraInit::uniform;
  if (*init == ConfigTree(false)) return LoraInit::nonzero;
  TESSERA_VALIDATE(*init == ConfigTree("gaussian"), ConfigError,
                   "adapter_config.json: init_lora_weights is ", init->dump(),
                   "; supported are true, false and \"gaussian\", which leave the base as it is. "
                   "PEFT's save_pretrained(path_initial_model_for_weight_conversion=...) writes "
                   "such an adapter as a plain one");
  return LoraInit::gaussian;
}

std::vector<std::string> read_names(ConfigTree const& config, char const* member) {
  std::vector<std::string> out;
  if (auto const* names = config.find(member); names && names->is_array())
    for (auto const& name : names->as_array()) out.push_back(name.as_string());
  return out;
}

ConfigTree::Array names_array(std::vector<std::string> const& names) {
  ConfigTree::Array out;
  for (auto const& name : names) out.emplace_back(name);
  return out;
}

constexpr char neox_head[] = "embed_out.weight";

/// "a.b.weight" is a parameter of module "a.b".
std::string module_of(std::string const& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

/// Whether PEFT leaves @p layer without an adapter, because it is or is in module @p saved.
bool is_inside(std::string const& layer, std::string const& saved) {
  return concat(".", layer, ".").find(concat(".", saved, ".")) != std::string::npos;
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
  for (auto const& saved : modules_to_save)
    if (is_inside(layer, saved)) return false;
  if (!pattern.empty()) return std::regex_match(layer, compiled(pattern, "target_modules"));
  return std::any_of(targets.begin(), targets.end(), [&](std::string const& target) {
    return target == "all-linear" || ends_with_name(layer, target);
  });
}

bool LoraOptions::saves(std::string const& module) const {
  for (auto end = module.size(); end != std::string::npos && end > 0;
       end = module.rfind('.', end - 1)) {
    std::string const name = module.substr(0, end);
    for (auto const& saved : modules_to_save)
      if (name.ends_with(saved)) return true;
  }
  return false;
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
  out.magnitudes = config.get_bool("use_dora", false);
  out.init = read_init(config);
  out.transposed = config.get_bool("fan_in_fan_out", false);
  out.modules_to_save = read_names(config, "modules_to_save");
  out.ties_saved_modules = config.get_bool("ensure_weight_tying", false);
  if (auto const* targets = config.find("target_modules"); targets && targets->is_array()) {
    out.targets = read_names(config, "target_modules");
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
    "layers_pattern": null, "layers_to_transform": null, "loftq_config": {},
    "megatron_config": null, "megatron_core": "megatron.core", "modules_to_save": null,
    "peft_type": "LORA", "rank_pattern": {}, "revision": null, "task_type": "CAUSAL_LM"})",
                                     "adapter configuration");
  out.set("base_model_name_or_path", base.empty() ? ConfigTree() : ConfigTree(base))
      .set("fan_in_fan_out", options.transposed)
      .set("lora_dropout", options.dropout)
      .set("r", options.rank)
      .set("use_dora", options.magnitudes)
      .set("use_rslora", options.rank_stabilized);
  if (options.init == LoraInit::gaussian)
    out.set("init_lora_weights", "gaussian");
  else
    out.set("init_lora_weights", options.init == LoraInit::uniform);
  if (!options.modules_to_save.empty())
    out.set("modules_to_save", names_array(options.modules_to_save));
  if (options.ties_saved_modules) out.set("ensure_weight_tying", true);
  if (options.alpha == std::floor(options.alpha))
    out.set("lora_alpha", static_cast<std::int64_t>(options.alpha));
  else
    out.set("lora_alpha", options.alpha);
  bool const is_text =
      !options.pattern.empty() || options.targets == std::vector<std::string>{"all-linear"};
  if (is_text)
    out.set("target_modules", options.pattern.empty() ? "all-linear" : options.pattern);
  else
    out.set("target_modules", names_array(options.targets));
  return out;
}

namespace {

/// Refuses a module whose layers are adapted, too: PEFT would train a copy with its own adapters.
void require_no_adapter(memory::ParameterSpec const& adapter, LoraOptions const& options) {
  std::string const layer = adapter.name.substr(
      sizeof adapter_prefix - 1, adapter.name.rfind(".lora_") - (sizeof adapter_prefix - 1));
  TESSERA_VALIDATE(!options.saves(layer), ConfigError, "modules_to_save ",
                   join(options.modules_to_save), " and target_modules both name ", layer,
                   "; name modules of modules_to_save by complete parts of their names");
}

/// Whether a module of @p options has the parameter, under its name or an alias.
bool is_in_saved_module(memory::ParameterSpec const& parameter, LoraOptions const& options) {
  return options.saves(module_of(parameter.name)) ||
         std::any_of(parameter.aliases.begin(), parameter.aliases.end(),
                     [&](auto const& alias) { return options.saves(module_of(alias)); });
}

}  // namespace

void train_saved_modules(std::vector<memory::UnitSpec>& units, LoraOptions const& options) {
  auto unmatched = options.modules_to_save;
  std::vector<std::string> modules;
  for (auto& unit : units)
    for (auto& p : unit.parameters) {
      if (p.is_adapter) {
        require_no_adapter(p, options);
        continue;
      }
      std::erase_if(unmatched, [&](auto const& name) {
        return is_in_saved_module(p, LoraOptions{.modules_to_save = {name}});
      });
      modules.push_back(module_of(p.name));
      if (!is_in_saved_module(p, options)) continue;
      TESSERA_VALIDATE(p.aliases.empty() || options.ties_saved_modules, ConfigError,
                       "modules_to_save has ", p.name, ", whose weights ", join(p.aliases),
                       " shares, without ensure_weight_tying: PEFT trained separate copies, which "
                       "this model cannot have. Train the adapter with ensure_weight_tying=True");
      TESSERA_VALIDATE(p.name != neox_head && std::ranges::count(p.aliases, neox_head) == 0,
                       ConfigError, "modules_to_save has the head of GPT-NeoX, which is embed_out ",
                       "in files and lm_head where PEFT looks for it; leave it out");
      p.trains = true;
      p.name = adapter_prefix + p.name;
      for (auto& alias : p.aliases) alias = adapter_prefix + alias;
    }
  TESSERA_VALIDATE(unmatched.empty(), ConfigError, "modules_to_save ", join(unmatched),
                   unmatched.size() == 1 ? " names" : " name",
                   " no module of the model; its first and its last are ", modules.front(), " and ",
                   modules.back());
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
