#include "tessera/model/families/registry.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "decoder/assemble.hpp"
#include "families/family.hpp"
#include "families/fields.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/core/words.hpp"

namespace tessera::model {
namespace {

using detail::DecoderDescription;
using detail::Family;

std::array<Family, 13> const& families() {
  using namespace detail;
  static std::array<Family, 13> const all{
      gpt2_family(),  gpt_bigcode_family(), llama_family(),      mistral_family(), qwen2_family(),
      qwen3_family(), gpt_neox_family(),    starcoder2_family(), phi_family(),     phi3_family(),
      olmo2_family(), gemma_family(),       gemma2_family()};
  return all;
}

Family const& family_of(std::string const& model_type) {
  std::string supported;
  for (Family const& family : families()) {
    if (family.model_type == model_type) return family;
    supported += (supported.empty() ? "" : ", ") + std::string(family.model_type);
  }
  throw ConfigError(
      concat("model_type '", model_type, "' is not supported; supported: ", supported));
}

Family const& family_of(ConfigTree const& config) {
  TESSERA_VALIDATE(config.is_object(), ConfigError, "config.json is ", config.type_name(),
                   "; it must be an object with a model_type");
  ConfigTree const* const model_type = config.find("model_type");
  TESSERA_VALIDATE(model_type && model_type->is_string(), ConfigError,
                   "config.json has no model_type; add it, for example \"model_type\": \"gpt2\"");
  return family_of(model_type->as_string());
}

std::string_view resolve(Family const& family, std::string_view key) {
  for (auto const& [alias, field] : family.aliases)
    if (alias == key) return field;
  return key;
}

ConfigTree default_config_of(Family const& family) {
  ConfigTree out = ConfigTree::parse(family.default_config, "default configuration");
  out.set("architectures", ConfigTree::Array{std::string(family.architecture)});
  return out;
}

/// Defaults under the given fields, aliases resolved. Fields that the family does not know are
/// kept, as transformers does.
ConfigTree complete(Family const& family, ConfigTree const& given) {
  ConfigTree out = default_config_of(family);
  if (detail::has_older_rotary_fields(given) && !given.contains("rope_parameters"))
    out.erase("rope_parameters");
  for (auto const& [key, value] : given.as_object()) {
    std::string const field(resolve(family, key));
    TESSERA_VALIDATE(field == key || !given.contains(field) || given.at(field) == value,
                     ConfigError, "config.json: ", key, " is ", value.dump(), " and ", field,
                     " is ", given.at(field).dump(), "; they mean the same, remove one of them");
    out.set(field, value);
  }
  return out;
}

/// Embedding and head of a tied model are saved as one. PEFT ties them where both are named.
void complete_saved_modules(LoraOptions& lora, DecoderDescription const& description) {
  std::vector<std::string> modules;
  for (auto const& name : {description.embedding.token_name, description.names.head})
    modules.push_back(name.substr(0, name.rfind('.')));
  auto const is_saved = [&](auto const& module) { return lora.saves(module); };
  lora.ties_saved_modules =
      lora.ties_saved_modules && description.tied && std::ranges::any_of(modules, is_saved);
  for (auto const& module : modules)
    if (lora.ties_saved_modules && !is_saved(module)) lora.modules_to_save.push_back(module);
}

/// PEFT's default: the fused projection, or queries and values.
LoraOptions complete(LoraOptions lora, DecoderDescription const& description) {
  auto const& qkv = description.attention.qkv;
  if (lora.targets.empty() && lora.pattern.empty())
    lora.targets = !description.lora_targets.empty() ? description.lora_targets
                   : qkv.layout == detail::QkvLayout::separate
                       ? std::vector{qkv.names[0], qkv.names[2]}
                       : qkv.names;
  lora.transposed = qkv.weights == detail::WeightLayout::in_out;
  complete_saved_modules(lora, description);
  return lora;
}

bool parse_flag(std::string_view key, std::string const& text) {
  std::string const lower = lower_case(text);
  for (auto const* yes : {"true", "1", "y", "yes"})
    if (lower == yes) return true;
  for (auto const* no : {"false", "0", "n", "no"})
    if (lower == no) return false;
  throw ConfigError(concat("config_overrides: ", key, "=", text, ": expected true or false"));
}

template <class Number>
bool parse_number(std::string const& text, Number& out) {
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

/// @p text as the type of @p old; an unset field takes an integer, a number or else a string.
ConfigTree parse_as(ConfigTree const& old, std::string_view key, std::string const& text) {
  if (old.is_bool()) return parse_flag(key, text);
  if (old.is_string()) return text;
  std::int64_t integer = 0;
  double real = 0.0;
  if ((old.is_int() || old.is_null()) && parse_number(text, integer)) return integer;
  if ((old.is_null() || (old.is_number() && !old.is_int())) && parse_number(text, real))
    return real;
  if (old.is_null()) return text;
  TESSERA_VALIDATE(old.is_number(), ConfigError, "config_overrides: ", key, " is ", old.type_name(),
                   "; only numbers, strings and true or false can be overridden");
  throw ConfigError(concat("config_overrides: ", key, "=", text, ": expected ", old.type_name(),
                           " like ", old.dump()));
}

}  // namespace

std::unique_ptr<CausalLm> make_model(ConfigTree const& hf_config, ModelOptions const& options) {
  Family const& family = family_of(hf_config);
  ConfigTree config = complete(family, hf_config);
  DecoderDescription description = family.describe(config);
  if (options.lora) description.lora = complete(*options.lora, description);
  detail::apply_options(description, options);
  detail::write_options(config, options, family.architecture);
  return detail::make_decoder(std::string(family.model_type), description, std::move(config),
                              {options.dtype, options.product_dtype, options.fp8});
}

LoraOptions complete_lora(LoraOptions options, ConfigTree const& hf_config) {
  Family const& family = family_of(hf_config);
  return complete(std::move(options), family.describe(complete(family, hf_config)));
}

std::int64_t hidden_size(ConfigTree const& hf_config) {
  for (char const* key : {"n_embd", "hidden_size"})
    if (auto const* size = hf_config.find(key)) return size->as_int();
  return 0;
}

ConfigTree default_config(std::string const& model_type) {
  return default_config_of(family_of(model_type));
}

ConfigTree apply_overrides(ConfigTree config, std::string const& overrides) {
  Family const& family = family_of(config);
  ConfigTree const defaults = default_config_of(family);
  config = complete(family, config);
  std::vector<std::string> unknown;
  if (overrides.empty()) return config;
  for (auto const& item : split(overrides, ',')) {
    std::size_t const equals = item.find('=');
    TESSERA_VALIDATE(equals != std::string::npos && equals > 0, ConfigError, "config_overrides: '",
                     item, "' is not of the form field=value; example: n_embd=256,n_layer=4");
    std::string const field(resolve(family, item.substr(0, equals)));
    if (!config.contains(field)) {
      unknown.push_back(field);
      continue;
    }
    // a number's type is that of the default, so that a dropout written as 0 can become 0.1
    ConfigTree const& typed = defaults.contains(field) && !defaults.at(field).is_null()
                                  ? defaults.at(field)
                                  : config.at(field);
    config.set(field, parse_as(typed, field, item.substr(equals + 1)));
  }
  TESSERA_VALIDATE(unknown.empty(), ConfigError, "config_overrides: ", join(unknown),
                   unknown.size() == 1 ? " is not a field" : " are not fields", " of the ",
                   family.model_type, " configuration");
  return config;
}

}  // namespace tessera::model
