#pragma once
/// Options as data: one table says what a name means, which values it takes, what it defaults to
/// and whether it is supported. Command lines, run files, DeepSpeed keys, --help and the reference
/// pages all come from it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera {

/// `list`: words. `json`: any JSON value; as a flag, text that opens with { or [ is parsed and
/// anything else stays text.
enum class OptionType { boolean, integer, real, string, path, choice, list, json };

/// How far Tessera follows an option. `hint`: accepted, its effect (often none) said in one line.
/// `refused`: an error for every value but the default, with the reason and what to use instead.
enum class Support { full, hint, refused };

/// Where a value came from; later ones win.
enum class Origin { default_value, run_file, flag, deepspeed, derived };
/// "default", "run file", "flag", "deepspeed", "derived"
std::string_view name_of(Origin origin);

/// One option. The setters return the option, so that a table reads as a list of sentences.
struct Option {
  std::string name;
  OptionType type = OptionType::string;
  ConfigTree default_value;  ///< the default; null: none
  std::string meaning;       ///< one line
  std::string group;
  std::string unit_name;
  std::vector<std::string> aliases;
  std::vector<std::string> choices;  ///< of a choice or of a list's items
  std::vector<std::pair<std::string, std::string>>
      exceptions;  ///< refused choice, reason and remedy
  std::optional<double> least, most;
  bool least_excluded = false;
  std::optional<std::string> automatic;  ///< "auto" is accepted; what it becomes
  std::string label;                     ///< replaces the type's name in texts
  Support support = Support::full;
  std::string note;  ///< of a hint: the effect; of a refusal: reason and remedy

  Option& alias(std::string other) { return aliases.push_back(std::move(other)), *this; }
  Option& unit(std::string name_of_unit) { return unit_name = std::move(name_of_unit), *this; }
  Option& at_least(double bound) { return least = bound, *this; }
  Option& above(double bound) { return least = bound, least_excluded = true, *this; }
  Option& at_most(double bound) { return most = bound, *this; }
  Option& one_of(std::vector<std::string> names) { return choices = std::move(names), *this; }
  Option& except(std::string choice, std::string why) {
    return exceptions.emplace_back(std::move(choice), std::move(why)), *this;
  }
  Option& auto_is(std::string becomes) { return automatic = std::move(becomes), *this; }
  Option& shown_as(std::string type_label) { return label = std::move(type_label), *this; }
  Option& hint(std::string effect) {
    return support = Support::hint, note = std::move(effect), *this;
  }
  Option& refuse(std::string why) {
    return support = Support::refused, note = std::move(why), *this;
  }
};

/// Who is told about a wrong value: flags end in UsageError (64), JSON keys in ConfigError (78).
enum class Audience { flag, key };

class OptionTable {
 public:
  /// Starts a group; options added afterwards belong to it.
  void group(std::string title);
  /// @p default_value null: no default. The reference is valid until the next add().
  Option& add(OptionType type, std::string name, ConfigTree default_value, std::string meaning);

  std::vector<Option> const& options() const { return options_; }
  /// By name or alias; `-` and `_` are the same. Null when unknown.
  Option const* find(std::string_view name) const;
  /// Every name and alias.
  std::vector<std::string> names() const;

 private:
  std::vector<Option> options_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::string group_;
};

/// Values by option name, with their origin. Options that were not given are absent.
struct OptionValues {
  struct Entry {
    ConfigTree value;
    Origin origin = Origin::default_value;
    bool operator==(Entry const&) const = default;
  };
  std::map<std::string, Entry, std::less<>> entries;

  bool given(std::string_view name) const { return entries.find(name) != entries.end(); }
  Origin origin(std::string_view name) const;
  /// The given value, else the table's default (null when it has none).
  ConfigTree const& value(OptionTable const& table, std::string_view name) const;
  /// Accepted hints that were given with another value than the default: "name: effect".
  std::vector<std::string> hints(OptionTable const& table) const;
};

/// Checks a JSON value against its option: type, range, choices, support; returns it in the
/// option's type (5e8 becomes an integer). "auto" comes back as the string "auto". Null and the
/// default are always accepted, also where the option is refused; so is a refused block that says
/// {"enabled": false}.
/// @param shown  the name to use in messages
/// @throws UsageError or ConfigError, by @p audience
ConfigTree checked_value(Option const& option, ConfigTree const& value, std::string const& shown,
                         Audience audience);

/// The same for the text of a flag.
ConfigTree parsed_value(Option const& option, std::string const& text, std::string const& shown);

/// Command-line words into values: `--name value`, `--name=value`, `-` as `_`, `--flag
/// [true|false]`, `--no_flag`, lists of words. The last of several wins. Words before the first
/// flag are left in @p positionals.
/// @throws UsageError naming the word, with the nearest known name when it is unknown
OptionValues parse_flags(OptionTable const& table, std::vector<std::string> const& words,
                         std::vector<std::string>& positionals);

/// A flat JSON object into values. @p source names it in messages. @throws ConfigError
OptionValues parse_flat(OptionTable const& table, ConfigTree const& object,
                        std::string const& source);

/// Every value of a JSON object, keyed by dotted path ("zero_optimization.stage"), checked against
/// a table of dotted names. Unknown keys at any level, a key together with its alias, and values
/// where a block belongs are errors. @throws ConfigError
OptionValues parse_nested(OptionTable const& table, ConfigTree const& object,
                          std::string const& source);

/// The name in @p names with the smallest edit distance (insert, delete, replace, swap of
/// neighbours), or "" when none is near enough to be what was meant (more than a third of the
/// length away).
std::string nearest_name(std::string_view name, std::vector<std::string> const& names);

/// Text for --help: grouped, wrapped at 100 columns. Refused options are left to the reference
/// page.
std::string help(OptionTable const& table, std::string const& program);

/// A reference page: @p head, then one Markdown table a group with type, default, meaning and
/// support.
std::string markdown(OptionTable const& table, std::string const& head);

}  // namespace tessera
