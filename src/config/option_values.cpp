#include "tessera/config/option_values.hpp"

#include <algorithm>
#include <cmath>

#include "detail/number_text.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::config {
namespace {

[[noreturn]] void fail(Audience audience, std::string const& message) {
  if (audience == Audience::flag) throw UsageError(message);
  throw ConfigError(message);
}

std::string plain(double value) {
  return ConfigTree(value == std::floor(value) && std::abs(value) < 1e15
                        ? ConfigTree(static_cast<std::int64_t>(value))
                        : ConfigTree(value))
      .dump();
}

}  // namespace

std::string expectation(Option const& option) {
  if (option.type == OptionType::choice) return "one of " + join(option.choices);
  if (option.type == OptionType::list && !option.choices.empty())
    return "a list of some of " + join(option.choices);
  bool const is_labeled = option.type == OptionType::json || option.type == OptionType::numbers;
  if (is_labeled && !option.label.empty()) return option.label;
  constexpr char const* types[] = {"true or false",   "an integer",        "a number",
                                   "a string",        "a string",          "",
                                   "a list of words", "a list of numbers", "a JSON value"};
  std::string out = types[static_cast<int>(option.type)];
  if (option.type != OptionType::integer && option.type != OptionType::real) return out;
  if (option.minimum && option.maximum && !option.minimum_excluded)
    return out + " from " + plain(*option.minimum) + " to " + plain(*option.maximum);
  if (option.minimum)
    out += (option.minimum_excluded ? " above " : " of at least ") + plain(*option.minimum);
  if (option.maximum)
    out += std::string(option.minimum ? " and" : "") + " of at most " + plain(*option.maximum);
  return out;
}

namespace {

[[noreturn]] void wrong_value(Option const& option, std::string const& found,
                              std::string const& shown, Audience audience) {
  fail(audience, concat(shown, " is ", found, "; it must be ", expectation(option),
                        option.automatic ? " or \"auto\"" : ""));
}

bool in_range(Option const& option, double value) {
  if (std::isnan(value)) return false;
  if (option.minimum &&
      (option.minimum_excluded ? value <= *option.minimum : value < *option.minimum))
    return false;
  return !option.maximum || value <= *option.maximum;
}

/// The value in the option's own type, or null when it is of another one.
ConfigTree converted(Option const& option, ConfigTree const& value) {
  switch (option.type) {
    case OptionType::boolean:
      return value.is_bool() ? value : ConfigTree();
    case OptionType::integer: {
      if (!value.is_number()) return {};
      double const number = value.as_double();
      if (!value.is_int() && (number != std::floor(number) || std::abs(number) >= 9.0e18))
        return {};
      return value.as_int();
    }
    case OptionType::real:
      return value.is_number() ? ConfigTree(value.as_double()) : ConfigTree();
    case OptionType::list: {
      if (value.is_string()) return ConfigTree::Array{value};
      if (!value.is_array()) return {};
      bool const words = std::ranges::all_of(
          value.as_array(), [](ConfigTree const& item) { return item.is_string(); });
      return words ? value : ConfigTree();
    }
    case OptionType::numbers: {
      bool const numbers =
          value.is_array() && std::ranges::all_of(value.as_array(), &ConfigTree::is_number);
      return numbers ? value : ConfigTree();
    }
    case OptionType::json:
      return value;
    default:
      return value.is_string() ? value : ConfigTree();
  }
}

bool is_valid_number(Option const& option, ConfigTree const& value) {
  ConfigTree const number = converted(option, value);
  return !number.is_null() && in_range(option, number.as_double());
}

void check_choice(Option const& option, std::string const& choice, std::string const& shown,
                  Audience audience) {
  for (auto const& [name, why] : option.exceptions)
    if (name == choice) fail(audience, concat(shown, " \"", choice, "\" is not supported: ", why));
  if (option.choices.empty() || std::ranges::find(option.choices, choice) != option.choices.end())
    return;
  std::string const near = nearest_name(choice, option.choices);
  fail(audience, concat(shown, " is \"", choice, "\"; it must be ", expectation(option),
                        near.empty() ? "" : "; did you mean " + near + "?"));
}

/// An empty value, or false: what people write to switch an option without a default off.
bool says_nothing(ConfigTree const& value) {
  if (value.is_bool()) return !value.as_bool();
  if (value.is_string()) return value.as_string().empty();
  return (value.is_array() || value.is_object()) && value.size() == 0;
}

ConfigTree boolean_from(std::string const& value) {
  std::string const text = lower_case(value);
  for (char const* yes : {"true", "yes", "t", "y", "on", "1"})
    if (text == yes) return true;
  for (char const* no : {"false", "no", "f", "n", "off", "0"})
    if (text == no) return false;
  return {};
}

/// What @p value spells in the option's type, as pydantic converts it; else the value itself.
ConfigTree spelled(Option const& option, ConfigTree const& value) {
  bool const wants_number = option.type == OptionType::integer || option.type == OptionType::real;
  if (wants_number && value.is_bool()) return value.as_bool() ? 1 : 0;
  if (option.type == OptionType::boolean && value.is_number() &&
      (value.as_double() == 0.0 || value.as_double() == 1.0))
    return value.as_double() == 1.0;
  if (!value.is_string()) return value;
  ConfigTree const out = option.type == OptionType::boolean ? boolean_from(value.as_string())
                         : wants_number                     ? detail::number_from(value.as_string())
                                                            : ConfigTree();
  return out.is_null() ? value : out;
}

/// Explains text that a missing quote has made too long; empty for other values.
std::string swallowed(ConfigTree const& value) {
  if (!value.is_string()) return "";
  auto const& text = value.as_string();
  bool const rest_of_line = text.find(',') != std::string::npos ||
                            text.find("//") != std::string::npos ||
                            text.find('#') != std::string::npos;
  return rest_of_line ? ": text without quotes extends to the end of its line, commas and comments "
                        "included (quote it)"
                      : "";
}

ConfigTree json_from(std::string const& text, std::string const& shown) {
  if (!text.starts_with('{') && !text.starts_with('[')) return text;
  try {
    return ConfigTree::parse(text, shown, ConfigTree::Syntax::relaxed);
  } catch (DataError const& e) {
    throw UsageError(e.what());
  }
}

}  // namespace

Origin OptionValues::origin(std::string_view name) const {
  auto const found = entries.find(name);
  return found == entries.end() ? Origin::default_value : found->second.origin;
}

ConfigTree const& OptionValues::value(OptionTable const& table, std::string_view name) const {
  if (auto const found = entries.find(name); found != entries.end()) return found->second.value;
  auto const* option = table.find(name);
  TESSERA_VALIDATE(option, InternalError, "the option table has no entry '", name, "'");
  return option->default_value;
}

std::vector<std::string> OptionValues::hints(OptionTable const& table) const {
  std::vector<std::string> out;
  for (auto const& option : table.options()) {
    auto const found = entries.find(option.name);
    bool const spoken = found != entries.end() && found->second.value != option.default_value &&
                        found->second.value != ConfigTree("auto");
    if (option.support == Support::hint && spoken) out.push_back(option.name + ": " + option.note);
  }
  return out;
}

ConfigTree checked_value(Option const& option, ConfigTree const& value, std::string const& shown,
                         Audience audience) {
  if (value.is_null()) return value;
  bool const is_auto = value.is_string() && value.as_string() == "auto";
  if (is_auto && option.automatic) return value;
  ConfigTree const out = converted(option, option.converts ? spelled(option, value) : value);
  if (out.is_null()) {
    bool const quoted = value.is_string() && audience == Audience::key &&
                        option.type != OptionType::choice && !is_auto;
    wrong_value(option,
                concat(value.is_string() ? "" : std::string(value.type_name()) + " ", value.dump(),
                       quoted ? " (a string)" : "", swallowed(value)),
                shown, audience);
  }
  if (out == option.default_value) return out;
  if (option.support == Support::refused) {
    if (option.default_value.is_null() && says_nothing(out)) return {};
    if (option.switches_off && option.switches_off(out)) return {};
    fail(audience, concat(shown, " is not supported: ", option.note));
  }
  if (option.type == OptionType::choice ||
      (option.type == OptionType::string && !option.exceptions.empty())) {
    for (auto const& [name, choice] : option.spellings)
      if (out.as_string() == name) return choice;
    check_choice(option, out.as_string(), shown, audience);
  }
  if (option.type == OptionType::list)
    for (auto const& item : out.as_array()) check_choice(option, item.as_string(), shown, audience);
  if (out.is_number() && option.type != OptionType::json && !in_range(option, out.as_double()))
    wrong_value(option, value.dump(), shown, audience);
  return out;
}

ConfigTree parsed_value(Option const& option, std::string const& text, std::string const& shown) {
  ConfigTree value = text;
  if (option.automatic && text == "auto") return value;
  switch (option.type) {
    case OptionType::boolean:
      value = boolean_from(text);
      break;
    case OptionType::integer:
    case OptionType::real:
      value = detail::number_from(text);
      if (!value.is_null() && option.support != Support::refused && !is_valid_number(option, value))
        wrong_value(option, text, shown, Audience::flag);
      break;
    case OptionType::numbers:
    case OptionType::json:
      value = json_from(text, shown);
      break;
    default:
      break;
  }
  if (value.is_null()) wrong_value(option, concat('"', text, '"'), shown, Audience::flag);
  return checked_value(option, value, shown, Audience::flag);
}

namespace {

/// Walks a JSON object and the table's dotted names together.
class KeyReader {
 public:
  KeyReader(OptionTable const& table, std::string const& source, Origin origin, bool nested)
      : table_(table), source_(source), origin_(origin), nested_(nested) {}

  OptionValues read(ConfigTree const& object) {
    TESSERA_VALIDATE(object.is_object(), ConfigError, source_,
                     " must hold a JSON object {...}, found ", object.type_name());
    walk("", object);
    refuse_unknown();
    return std::move(values_);
  }

 private:
  void walk(std::string const& prefix, ConfigTree const& object, bool inside_off = false) {
    bool const off = inside_off || is_off(prefix, object);
    for (auto const& [key, value] : object.as_object()) {
      std::string const path = prefix + key;
      if (auto const* option = exact(path))
        store(*option, path, value);
      else if (nested_ && is_block(path))
        walk_block(path, value, off);
      else if (!off)
        unknown_.emplace_back(path, nearest(prefix, key));
    }
  }

  /// The block of a feature that is not supported and switched off. Members that the table does not
  /// have do nothing in DeepSpeed either, except in its typed blocks, which refuse them.
  bool is_off(std::string const& prefix, ConfigTree const& object) const {
    auto const* option = prefix.empty() ? nullptr : table_.find(prefix + "enabled");
    if (!option || option->support != Support::refused || option->converts) return false;
    auto const* value = object.find("enabled");
    return !value || value->is_null() || *value == ConfigTree(false);
  }

  void walk_block(std::string const& path, ConfigTree const& value, bool off) {
    if (value.is_null()) return;
    TESSERA_VALIDATE(value.is_object(), ConfigError, source_, ": ", path,
                     " must be a block {...}, found ", value.dump());
    walk(path + ".", value, off);
  }

  void store(Option const& option, std::string const& path, ConfigTree const& value) {
    auto const [seen, first] = written_.emplace(option.name, path);
    TESSERA_VALIDATE(first, ConfigError, source_, ": ", seen->second, " and ", path,
                     " are two names of one key; remove one of them");
    ConfigTree checked = checked_value(option, value, source_ + ": " + path, Audience::key);
    if (!checked.is_null()) values_.entries[option.name] = {std::move(checked), origin_};
  }

  /// JSON keys are matched letter by letter.
  Option const* exact(std::string const& path) const {
    auto const* option = table_.find(path);
    if (!option || option->name == path) return option;
    return std::ranges::find(option->aliases, path) != option->aliases.end() ? option : nullptr;
  }

  bool is_block(std::string const& path) const {
    return std::ranges::any_of(table_.options(), [&](Option const& option) {
      return option.name.starts_with(path + ".");
    });
  }

  /// What the key of a block was probably meant to be; empty: nothing.
  std::string nearest(std::string const& prefix, std::string const& key) const {
    std::vector<std::string> here, elsewhere;
    for (auto const& name : table_.names()) {
      if (name.starts_with(prefix))
        here.push_back(name.substr(prefix.size(), name.find('.', prefix.size()) - prefix.size()));
      if (name.substr(name.rfind('.') + 1) == key) elsewhere.push_back(name);
    }
    std::string near = nearest_name(key, here);
    if (!near.empty()) near = prefix + near;
    if (near.empty() && !elsewhere.empty()) near = elsewhere.front();
    return near;
  }

  /// One message names all of them.
  void refuse_unknown() const {
    if (unknown_.empty()) return;
    if (unknown_.size() == 1) {
      auto const& [path, near] = unknown_.front();
      throw ConfigError(concat(source_, ": unknown key ", path,
                               near.empty() ? "; remove it" : "; did you mean " + near + "?"));
    }
    std::vector<std::string> words;
    for (auto const& [path, near] : unknown_)
      words.push_back(path + (near.empty() ? " (remove it)" : " (did you mean " + near + "?)"));
    throw ConfigError(concat(source_, ": ", unknown_.size(), " unknown keys: ", join(words)));
  }

  OptionTable const& table_;
  std::string const& source_;
  Origin origin_;
  bool nested_;
  OptionValues values_;
  std::map<std::string, std::string> written_;
  std::vector<std::pair<std::string, std::string>> unknown_;  ///< path and nearest name
};

}  // namespace

OptionValues parse_flat(OptionTable const& table, ConfigTree const& object,
                        std::string const& source) {
  return KeyReader(table, source, Origin::run_file, false).read(object);
}

OptionValues parse_nested(OptionTable const& table, ConfigTree const& object,
                          std::string const& source) {
  return KeyReader(table, source, Origin::deepspeed, true).read(object);
}

}  // namespace tessera::config
