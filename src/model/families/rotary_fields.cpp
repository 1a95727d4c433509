#include "families/rotary_fields.hpp"

#include "families/fields.hpp"
#include "tessera/core/error.hpp"

namespace tessera::model::detail {
namespace {

using kernels::RotaryOptions;
using kernels::RotaryScaling;

/// The object of a member, empty where it is missing or null. transformers prefers rope_scaling.
ConfigTree parameters_of(ConfigTree const& config) {
  for (char const* key : {"rope_scaling", "rope_parameters"}) {
    ConfigTree const* const found = config.find(key);
    if (!found || found->is_null() || (found->is_object() && found->size() == 0)) continue;
    TESSERA_VALIDATE(found->is_object(), ConfigError, "config.json: ", key, " is ",
                     found->type_name(), "; it must be an object or null");
    for (char const* nested : {"full_attention", "sliding_attention"})
      TESSERA_VALIDATE(!found->contains(nested), ConfigError, "config.json: ", key, ".", nested,
                       ": rotary positions that differ between layers are not supported; use a "
                       "model with one rope_theta");
    return *found;
  }
  return ConfigTree::object();
}

std::string type_of(ConfigTree const& parameters) {
  return parameters.get_string("rope_type", parameters.get_string("type", "default"));
}

/// Phi3Config of transformers 5.24: convert_rope_params_to_dict() and validate_rope().
RotaryScaling scaling_of_phi3(std::string const& type) {
  if (type == "default") return RotaryScaling::none;
  for (char const* name : {"longrope", "su", "yarn"})
    if (type == name) return RotaryScaling::longrope;
  throw ConfigError(concat("config.json: rope_type '", type,
                           "' is not supported for phi3; supported are default and longrope with "
                           "its older names su and yarn, as in transformers"));
}

RotaryScaling scaling_of(ConfigTree const& parameters, RotaryFields::Names names) {
  std::string const type = type_of(parameters);
  if (names == RotaryFields::Names::phi3) return scaling_of_phi3(type);
  for (auto const& [name, scaling] : {std::pair("default", RotaryScaling::none),
                                      {"linear", RotaryScaling::linear},
                                      {"dynamic", RotaryScaling::dynamic},
                                      {"yarn", RotaryScaling::yarn},
                                      {"llama3", RotaryScaling::llama3},
                                      {"longrope", RotaryScaling::longrope}})
    if (type == name) return scaling;
  throw ConfigError(
      concat("config.json: rope_type '", type,
             "' is not supported; supported are default, linear, dynamic, yarn, "
             "llama3 and longrope; a model trained up to original_max_position_embeddings can be "
             "used with rope_type default"));
}

std::vector<double> numbers(ConfigTree const& parameters, std::string const& key) {
  ConfigTree const* const list = parameters.find(key);
  TESSERA_VALIDATE(list && list->is_array(), ConfigError, "config.json: ", key,
                   " of rope_scaling is ", list ? list->type_name() : "missing",
                   "; longrope needs a list of numbers");
  std::vector<double> out;
  for (auto const& value : list->as_array()) {
    TESSERA_VALIDATE(value.is_number(), ConfigError, "config.json: ", key,
                     " of rope_scaling has the value ", value.dump(), "; all must be numbers");
    out.push_back(value.as_double());
  }
  return out;
}

/// A member of the parameters, else of the configuration under @p older, else @p otherwise.
double real_of(ConfigTree const& parameters, std::string_view key, ConfigTree const& config,
               std::string_view older, double otherwise) {
  if (Fields const inner(parameters); inner.is_set(key)) return inner.real(key);
  if (Fields const outer(config); !older.empty() && outer.is_set(older)) return outer.real(older);
  return otherwise;
}

}  // namespace

RotaryOptions read_rotary(ConfigTree const& config, RotaryFields const& of) {
  ConfigTree const parameters = parameters_of(config);
  Fields const inner(parameters), outer(config);
  auto const real = [&](std::string_view key, double otherwise) {
    return inner.is_set(key) ? inner.real(key) : otherwise;
  };
  RotaryOptions out;
  out.scaling = scaling_of(parameters, of.names);
  double const part =
      real_of(parameters, "partial_rotary_factor", config, of.partial, of.partial_default);
  TESSERA_VALIDATE(part > 0.0 && part <= 1.0, ConfigError, "config.json: ", of.partial, " is ",
                   part, "; the rotated part of a head must be above 0 and at most 1");
  out.rotary_dim = static_cast<int>(of.head_dim * part);
  TESSERA_VALIDATE(out.rotary_dim % 2 == 0 && out.rotary_dim > 0, ConfigError,
                   "config.json: rotary positions need an even number of dimensions of a head, "
                   "but ",
                   out.rotary_dim, " of ", of.head_dim,
                   " are rotated; choose head_dim and partial_rotary_factor accordingly");
  out.theta = real_of(parameters, "rope_theta", config, of.theta, 10000.0);
  out.max_positions = outer.positive("max_position_embeddings");
  std::string_view const original = "original_max_position_embeddings";
  // Phi3Config moves its own field inside, before it renames su
  bool const outer_first = of.names == RotaryFields::Names::phi3 && outer.is_set(original) &&
                           type_of(parameters) != "su";
  out.original_max_positions =
      outer_first ? outer.positive(original)
                  : inner.positive_or(original, outer.positive_or(original, out.max_positions));
  bool const needs_factor = out.scaling != RotaryScaling::none &&
                            out.scaling != RotaryScaling::yarn &&
                            out.scaling != RotaryScaling::longrope;
  out.factor = needs_factor ? inner.real("factor")
                            : real("factor", static_cast<double>(out.max_positions) /
                                                 static_cast<double>(out.original_max_positions));
  if (out.scaling == RotaryScaling::llama3) {
    out.low_freq_factor = inner.real("low_freq_factor");
    out.high_freq_factor = inner.real("high_freq_factor");
  }
  if (out.scaling == RotaryScaling::longrope) {
    out.short_factor = numbers(parameters, "short_factor");
    out.long_factor = numbers(parameters, "long_factor");
  }
  out.beta_fast = real("beta_fast", 32.0);
  out.beta_slow = real("beta_slow", 1.0);
  out.mscale = real("mscale", 0.0);
  out.mscale_all_dim = real("mscale_all_dim", 0.0);
  if (inner.is_set("attention_factor")) out.attention_factor = inner.real("attention_factor");
  if (inner.is_set("truncate")) out.truncate = inner.flag("truncate");
  (void)kernels::rotary_frequencies(out);  // refuses values without a meaning
  return out;
}

std::int64_t max_positions(ConfigTree const& config, RotaryOptions const& rotary) {
  std::int64_t const trained = Fields(config).positive("max_position_embeddings");
  if (rotary.scaling != RotaryScaling::dynamic || rotary.factor <= 1.0) return trained;
  double const extended = rotary.factor * static_cast<double>(trained);
  return extended < 0x1.0p31 ? static_cast<std::int64_t>(extended) : INT32_MAX;
}

bool has_older_rotary_fields(ConfigTree const& config) {
  for (char const* key :
       {"rope_theta", "rope_scaling", "rotary_emb_base", "rotary_pct", "partial_rotary_factor"})
    if (config.contains(key)) return true;
  return false;
}

}  // namespace tessera::model::detail
