#include "families/fields.hpp"

#include "tessera/core/error.hpp"

namespace tessera::model::detail {
namespace {

/// Far above any model: a list of this many layers does not exhaust memory.
constexpr std::int64_t max_layers = 100'000;

[[noreturn]] void wrong_type(std::string_view key, std::string_view wanted,
                             ConfigTree const& found) {
  throw ConfigError(concat("config.json: ", key, " is ", found.dump(), " (", found.type_name(),
                           "); it must be ", wanted));
}

}  // namespace

ConfigTree const& Fields::value(std::string_view key) const {
  ConfigTree const* const found = config_.find(key);
  TESSERA_VALIDATE(found && !found->is_null(), ConfigError, "config.json: ", key,
                   " is missing; add it or start from a complete config.json");
  return *found;
}

bool Fields::is_set(std::string_view key) const {
  ConfigTree const* const found = config_.find(key);
  return found && !found->is_null();
}

std::int64_t Fields::integer(std::string_view key) const {
  ConfigTree const& found = value(key);
  if (!found.is_int()) wrong_type(key, "an integer", found);
  return found.as_int();
}

std::int64_t Fields::positive(std::string_view key) const {
  std::int64_t const n = integer(key);
  TESSERA_VALIDATE(n >= 1 && n <= INT32_MAX, ConfigError, "config.json: ", key, " is ", n,
                   "; it must be between 1 and ", INT32_MAX);
  return n;
}

double Fields::real(std::string_view key) const {
  ConfigTree const& found = value(key);
  if (!found.is_number()) wrong_type(key, "a number", found);
  return found.as_double();
}

double Fields::probability(std::string_view key) const {
  double const p = real(key);
  TESSERA_VALIDATE(p >= 0.0 && p < 1.0, ConfigError, "config.json: ", key, " is ", p,
                   "; a dropout probability must be at least 0 and below 1");
  return p;
}

int Fields::layers(std::string_view key) const {
  std::int64_t const n = positive(key);
  TESSERA_VALIDATE(n <= max_layers, ConfigError, "config.json: ", key, " is ", n, "; at most ",
                   max_layers, " are built");
  return static_cast<int>(n);
}

double Fields::epsilon(std::string_view key) const {
  double const value = real(key);
  TESSERA_VALIDATE(value > 0.0, ConfigError, "config.json: ", key, " is ", value,
                   "; it must be positive (usually 1e-5)");
  return value;
}

double Fields::positive_real(std::string_view key) const {
  double const value = real(key);
  TESSERA_VALIDATE(value > 0.0, ConfigError, "config.json: ", key, " is ", value,
                   "; it must be positive");
  return value;
}

double Fields::deviation(std::string_view key) const {
  double const value = real(key);
  TESSERA_VALIDATE(value >= 0.0, ConfigError, "config.json: ", key, " is ", value,
                   "; a standard deviation cannot be negative");
  return value;
}

std::int64_t Fields::positive_or(std::string_view key, std::int64_t otherwise) const {
  return is_set(key) ? positive(key) : otherwise;
}

int Fields::heads(std::string_view key, std::string_view of) const {
  std::int64_t const count = positive(key), columns = positive(of);
  TESSERA_VALIDATE(columns % count == 0, ConfigError, "config.json: ", of, " ", columns,
                   " is not a multiple of ", key, " ", count, "; every head needs ", of, " / ", key,
                   " columns");
  return static_cast<int>(count);
}

kernels::Activation Fields::activation(std::string_view key) const {
  using kernels::Activation;
  static constexpr std::pair<std::string_view, Activation> names[] = {
      {"gelu_new", Activation::gelu_new},
      {"gelu_pytorch_tanh", Activation::gelu_new},
      {"gelu_fast", Activation::gelu_new},
      {"gelu", Activation::gelu},
      {"gelu_python", Activation::gelu},
      {"silu", Activation::silu},
      {"swish", Activation::silu},
      {"relu", Activation::relu},
      {"quick_gelu", Activation::quick_gelu},
      {"relu2", Activation::relu_squared}};
  std::string const wanted = text(key);
  std::string known;
  for (auto const& [name, activation] : names) {
    if (name == wanted) return activation;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw ConfigError(
      concat("config.json: ", key, " '", wanted, "' is not supported; supported are ", known));
}

void Fields::refuse(std::string_view key, std::string_view instead) const {
  if (!is_set(key)) return;
  ConfigTree const& found = value(key);
  bool const off = (found.is_bool() && !found.as_bool()) ||
                   (found.is_number() && found.as_double() == 0.0) ||
                   ((found.is_array() || found.is_object()) && found.size() == 0);
  TESSERA_VALIDATE(off, ConfigError, "config.json: ", key, " ", found.dump(), " is not supported; ",
                   instead);
}

bool Fields::flag(std::string_view key) const {
  ConfigTree const& found = value(key);
  if (!found.is_bool()) wrong_type(key, "true or false", found);
  return found.as_bool();
}

std::string Fields::text(std::string_view key) const {
  ConfigTree const& found = value(key);
  if (!found.is_string()) wrong_type(key, "a string", found);
  return found.as_string();
}

namespace {

/// Frequencies that depend on the length of a row.
void check_documents(DecoderDescription const& description) {
  if (!description.documents.reset_position_ids || !description.rotary) return;
  using enum kernels::RotaryScaling;
  auto const scaling = description.rotary->scaling;
  TESSERA_VALIDATE(scaling != dynamic && scaling != longrope, ConfigError, "rope_type ",
                   scaling == dynamic ? "dynamic" : "longrope",
                   " with reset_position_ids: its frequencies would depend on the longest document "
                   "of a micro-batch; leave reset_position_ids out");
}

void replace_head(DecoderDescription& description, HeadOptions const& head) {
  TESSERA_VALIDATE(head.outputs >= 1 && !head.name.empty(), ConfigError, "a head '", head.name,
                   "' with ", head.outputs, " outputs: it needs a name and at least one output");
  TESSERA_VALIDATE(!description.lora, ConfigError, "adapters with the head ", head.name,
                   " of one's own: adapters freeze it; leave use_peft_lora out");
  description.replaced_head = description.names.head;
  description.head_outputs = head.outputs;
  description.names.head = head.name;
  description.names.head_bias.clear();
  description.logit_cap = 0.0;
  description.tied = false;
}

std::string_view torch_name(Dtype dtype) {
  return dtype == Dtype::bf16 ? "bfloat16" : dtype == Dtype::fp16 ? "float16" : "float32";
}

}  // namespace

void apply_options(DecoderDescription& description, ModelOptions const& options) {
  Dtype const dtype = options.dtype;
  TESSERA_VALIDATE(dtype == Dtype::fp32 || dtype == Dtype::bf16 || dtype == Dtype::fp16,
                   ConfigError, "a model in ", name_of(dtype),
                   " is not supported; use fp32, bf16 or fp16");
  description.label_smoothing = options.label_smoothing;
  description.dynamic_loss = options.dynamic_loss;
  description.embedding.noise_alpha = options.neftune_noise_alpha;
  description.frozen = options.frozen_parameters;
  description.documents = options.documents;
  check_documents(description);
  if (options.head) replace_head(description, *options.head);
}

void write_options(ConfigTree& config, ModelOptions const& options, std::string_view architecture) {
  std::string const own = options.head ? options.head->architecture : "";
  if (std::string const name = own.empty() ? std::string(architecture) : own; !name.empty())
    config.set("architectures", ConfigTree::Array{name});
  if (options.head && !config.contains("id2label")) config.set("num_labels", options.head->outputs);
  config.erase("torch_dtype");
  config.set("dtype", torch_name(options.dtype));
}

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
