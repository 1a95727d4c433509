#pragma once
/// Options as data: a table has the name, meaning, type, range, default and support of each option.
/// Command lines, run files, DeepSpeed keys, --help and the reference pages are generated from it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::config {

/// `list`: words. `numbers`: a list of numbers. `json`: any JSON value. As a flag, text of the last
/// two that opens with { or [ is parsed and anything else stays text.
enum class OptionType { boolean, integer, real, string, path, choice, list, numbers, json };

/// `hint`: accepted, with another effect or none, which the note describes. `refused`: an error for
/// every value but the default, with the reason and the alternative.
enum class Support { full, hint, refused };

/// What it means when a checkpoint and the run that resumes from it have different values.
enum class Resume {
  reported,  ///< allowed; the log names it
  training,  ///< steps compute something else: an error unless that is allowed
  /// As training where the model's attention has dropout, else reported.
  attention_dropout,
  described  ///< not compared: resolved values cover it, or it says what this start does
};

/// Where a value came from; later ones win.
enum class Origin { default_value, accelerate, run_file, flag, deepspeed, derived };
/// "default", "accelerate", "run file", "flag", "deepspeed", "derived"
std::string_view name_of(Origin origin);

/// One option. The setters return the option for chaining.
struct Option {
  std::string name;
  OptionType type = OptionType::string;
  ConfigTree default_value;  ///< the default; null: none
  std::string meaning;       ///< one line
  std::string group;
  std::string unit_name;
  std::vector<std::string> aliases;
  std::vector<std::string> choices;  ///< values of a choice or of a list's items
  std::vector<std::pair<std::string, std::string>>
      exceptions;  ///< refused choice, reason and remedy
  std::vector<std::pair<std::string, std::string>>
      spellings;  ///< spellings of a choice: another spelling, and the choice that it means
  std::optional<double> minimum, maximum;
  bool minimum_excluded = false;
  std::optional<std::string> automatic;  ///< "auto" is accepted; what it becomes
  std::string label;                     ///< replaces the type's name in texts
  Resume resume_class = Resume::reported;
  std::string value_name;  ///< "DIR": the value in --help; empty: by type
  char letter = 0;         ///< "t": the option is -t too
  bool is_positional = false, is_required = false;
  bool separated = false;                     ///< a list whose words may be separated by commas
  std::vector<std::string> needed, excluded;  ///< options that must be given with it, or not
  bool converts = false;  ///< "2", "true" and 1 count as the number or boolean they spell
  Support support = Support::full;
  std::string note;  ///< text of a hint: the effect; of a refusal: reason and remedy
  /// A refused option accepts the values for which this is true. Null: only its default.
  using Predicate = bool (*)(ConfigTree const&);
  Predicate switches_off = nullptr;

  Option& alias(std::string other) { return aliases.push_back(std::move(other)), *this; }
  Option& unit(std::string name) { return unit_name = std::move(name), *this; }
  /// Bounds of a number, and its unit.
  Option& at_least(double bound, std::string of_unit = {}) {
    if (!of_unit.empty()) unit_name = std::move(of_unit);
    return minimum = bound, *this;
  }
  Option& above(double bound, std::string of_unit = {}) {
    return minimum_excluded = true, at_least(bound, std::move(of_unit));
  }
  Option& between(double low, double high, std::string of_unit = {}) {
    return maximum = high, at_least(low, std::move(of_unit));
  }
  Option& at_most(double bound) { return maximum = bound, *this; }
  /// Text becomes a choice; a list's items are some of @p names.
  Option& one_of(std::vector<std::string> names) {
    if (type == OptionType::string) type = OptionType::choice;
    return choices = std::move(names), *this;
  }
  Option& except(std::string choice, std::string why) {
    return exceptions.emplace_back(std::move(choice), std::move(why)), *this;
  }
  Option& spelled(std::vector<std::string> const& names, std::string const& choice) {
    for (auto const& other : names) spellings.emplace_back(other, choice);
    return *this;
  }
  Option& resume(Resume meaning_of_change) { return resume_class = meaning_of_change, *this; }
  /// Where the table says another type or default than the variable has.
  Option& of_type(OptionType other) { return type = other, *this; }
  Option& default_is(ConfigTree value) { return default_value = std::move(value), *this; }
  Option& required() { return is_required = true, *this; }
  Option& by_commas() { return separated = true, *this; }
  Option& needs(std::string other) { return needed.push_back(std::move(other)), *this; }
  Option& excludes(std::string other) { return excluded.push_back(std::move(other)), *this; }
  Option& auto_is(std::string becomes) { return automatic = std::move(becomes), *this; }
  Option& shown_as(std::string type_label) { return label = std::move(type_label), *this; }
  Option& hint(std::string effect) {
    return support = Support::hint, note = std::move(effect), *this;
  }
  Option& refuse(std::string why) {
    return support = Support::refused, note = std::move(why), *this;
  }
  Option& unless(Predicate off) { return switches_off = off, *this; }
};

/// The options of a program or of a configuration file, in groups.
class OptionTable {
 public:
  /// Starts a group; options added afterwards belong to it and have its class for a resume.
  void group(std::string title, Resume resume_class = Resume::reported);
  /// @p default_value null: no default. The reference is valid until the next add().
  Option& add(OptionType type, std::string name, ConfigTree default_value, std::string meaning);
  /// A row of another table, in this table's group.
  Option& add(Option option);

  std::vector<Option> const& options() const { return options_; }
  /// The options under @p prefix convert text, numbers and booleans into each other, and take
  /// "auto" as their default, as DeepSpeed's typed blocks do.
  void convert_values(std::string_view prefix);
  /// Finds an option by name or alias; `-` and `_` are the same. Null when unknown.
  Option const* find(std::string_view name) const;
  /// Every name and alias.
  std::vector<std::string> names() const;

 private:
  std::vector<Option> options_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::string group_;
  Resume resume_class_ = Resume::reported;
};

/// The name in @p names with the smallest edit distance (insert, delete, replace, swap of
/// neighbors), or "" when none is near enough to be what was meant (more than a third of the
/// length away).
std::string nearest_name(std::string_view name, std::vector<std::string> const& names);

/// The table behind the command line.
OptionTable const& argument_table();

/// Returns the rule of the argument of this name, in describe(TrainingArguments).
Resume resume_of_argument(std::string_view name);

/// The table of all DeepSpeed keys, names as dotted paths.
OptionTable const& deepspeed_table();

/// "-t, --tag" or "directory": an option as --help and man pages show it.
std::string shown_names(Option const& option);
/// "DIR", "N", "a|b": its value there; empty for a flag.
std::string shown_value(Option const& option);
/// Its meaning with choices, other names and default.
std::string shown_meaning(Option const& option);

/// Text for --help: grouped, wrapped at 100 columns. Refused options are left to the reference
/// page.
std::string help(OptionTable const& table, std::string const& program);

/// Meaning, values, default and support of one option: lines of text.
std::string explain(Option const& option);

/// The options of tessera-train and the keys of the DeepSpeed JSON that @p name names, completely
/// or by a part of a dotted name, each explained. @throws UsageError naming the nearest one
std::string explain(std::string const& name);

/// A reference page: @p head, then one Markdown table a group with type, default, meaning and
/// support.
std::string markdown(OptionTable const& table, std::string const& head);

/// Text of --help and of docs/reference/options.md.
std::string arguments_help();
std::string arguments_page();
/// Text of docs/reference/deepspeed-config.md.
std::string deepspeed_page();

}  // namespace tessera::config
