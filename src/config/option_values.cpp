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

std::string suggestion(std::string_view name, std::vector<std::string> const& names) {
  if (auto const near = nearest_name(name, names); !near.empty())
    return concat("; did you mean --", near, "?");
  for (auto const& key : deepspeed_table().names())
    if (key == name || key.ends_with("." + std::string(name)))
      return concat("; ", key, " is a key of the DeepSpeed JSON, which --deepspeed FILE reads");
  return "";
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

bool is_flag(std::string const& word) {
  bool const two = word.size() > 2 && word.starts_with("--") &&
                   std::isalpha(static_cast<unsigned char>(word[2]));
  return two ||
         (word.size() > 1 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])));
}

/// Reads one command line; `at_` is the word after the last one used.
class FlagReader {
 public:
  FlagReader(OptionTable const& table, std::vector<std::string> const& words)
      : table_(table), words_(words) {}

  OptionValues read(std::vector<std::string>& positionals) {
    while (at_ < words_.size() && !is_flag(words_[at_])) positionals.push_back(words_[at_++]);
    while (at_ < words_.size()) {
      std::string const& word = words_[at_++];
      TESSERA_VALIDATE(is_flag(word), UsageError, "unexpected word '", word, "' after ", last_,
                       "; options are written --name value (a value with blanks needs quotes)");
      read_flag(word);
    }
    refuse_unknown();
    return std::move(values_);
  }

 private:
  void read_flag(std::string const& word) {
    std::string const body = word.substr(word.starts_with("--") ? 2 : 1);
    auto const equals = body.find('=');
    std::string const name = body.substr(0, equals);
    std::optional<std::string> text;
    if (equals != std::string::npos) text = body.substr(equals + 1);
    last_ = "--" + name;
    bool const single_dash = !word.starts_with("--");
    Option const* option = single_dash && name.size() > 1 ? nullptr : table_.find(name);
    if (option) return store(*option, value_of(*option, text));
    bool const negated = name.starts_with("no_") || name.starts_with("no-");
    option = negated && !single_dash ? table_.find(name.substr(3)) : nullptr;
    if (!option || option->type != OptionType::boolean) {
      unknown_.emplace_back(word.substr(0, word.find('=')), name);
      while (at_ < words_.size() && !is_flag(words_[at_])) ++at_;  // its values
      return;
    }
    TESSERA_VALIDATE(!text, UsageError, last_, " takes no value; write --", option->name, "=",
                     text.value_or(""));
    store(*option, parsed_value(*option, "false", last_));
  }

  ConfigTree value_of(Option const& option, std::optional<std::string> const& text) {
    if (text) return parsed_value(option, *text, last_);
    bool const has_next = at_ < words_.size() && !is_flag(words_[at_]);
    bool const may_be_bare =
        option.type == OptionType::boolean || option.label.ends_with("or true");
    if (may_be_bare) return parsed_value(option, has_next ? words_[at_++] : "true", last_);
    TESSERA_VALIDATE(has_next, UsageError, last_, " needs ", expectation(option), "; write ", last_,
                     "=VALUE if the value starts with a dash");
    if (option.type != OptionType::list) return parsed_value(option, words_[at_++], last_);
    ConfigTree::Array items;
    while (at_ < words_.size() && !is_flag(words_[at_])) items.emplace_back(words_[at_++]);
    return checked_value(option, items, last_, Audience::flag);
  }

  void store(Option const& option, ConfigTree value) {
    values_.entries[option.name] = {std::move(value), Origin::flag};
  }

  /// One message names all of them.
  void refuse_unknown() const {
    if (unknown_.empty()) return;
    std::string const help = "; see tessera-train --help";
    auto const names = table_.names();
    if (unknown_.size() == 1)
      throw UsageError(concat("unknown option ", unknown_[0].first,
                              suggestion(unknown_[0].second, names), help));
    std::vector<std::string> words;
    for (auto const& [shown, name] : unknown_) {
      auto const near = nearest_name(name, names);
      words.push_back(shown + (near.empty() ? "" : " (did you mean --" + near + "?)"));
    }
    throw UsageError(concat("unknown options ", join(words), help));
  }

  OptionTable const& table_;
  std::vector<std::string> const& words_;
  std::size_t at_ = 0;
  std::string last_;
  std::vector<std::pair<std::string, std::string>> unknown_;  ///< as given, and without dashes
  OptionValues values_;
};

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

OptionValues parse_flags(OptionTable const& table, std::vector<std::string> const& words,
                         std::vector<std::string>& positionals) {
  return FlagReader(table, words).read(positionals);
}

OptionValues parse_flat(OptionTable const& table, ConfigTree const& object,
                        std::string const& source) {
  return KeyReader(table, source, Origin::run_file, false).read(object);
}

OptionValues parse_nested(OptionTable const& table, ConfigTree const& object,
                          std::string const& source) {
  return KeyReader(table, source, Origin::deepspeed, true).read(object);
}

}  // namespace tessera::config
