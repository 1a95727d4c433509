#include "families/fields.hpp"

#include "tessera/core/error.hpp"

namespace tessera::model::detail {
namespace {

/// Far above any model: a list of so many layers does not exhaust memory.
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

}  // namespace tessera::model::detail
