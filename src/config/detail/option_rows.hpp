#pragma once
/// Rows of the option table of tessera-train, each with the member that it sets.

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/config/arguments.hpp"
#include "tessera/config/option_field.hpp"
#include "tessera/config/option_table.hpp"

namespace tessera::config::detail {

/// The member that an option sets, by the option's name.
struct ArgumentField {
  std::string name;
  std::function<void(TrainingArguments&, ConfigTree const&)> assign;
  std::function<ConfigTree(TrainingArguments const&)> read;
  std::function<ConfigTree(EngineOptions const&)> resolved;  ///< value of a member of EngineOptions
};

class ArgumentRows : public OptionTable {
 public:
  using Arguments = TrainingArguments;
  using OptionTable::add;
  /// The member's type gives the option's type, and its initializer the default.
  template <class Owner, class T>
  Option& add(T Owner::*member, std::string const& name, std::string meaning) {
    ArgumentField field{
        name,
        [=](TrainingArguments& a, ConfigTree const& v) { assign(a.*member, v, "--" + name); },
        [=](TrainingArguments const& a) { return to_tree(a.*member); },
        {}};
    if constexpr (std::is_same_v<Owner, EngineOptions>)
      field.resolved = [=](EngineOptions const& o) { return to_tree(o.*member); };
    fields.push_back(std::move(field));
    auto& option =
        add(option_type<T>(), name, to_tree(TrainingArguments().*member), std::move(meaning));
    if constexpr (std::is_enum_v<T>) option.one_of({enum_names<T>.begin(), enum_names<T>.end()});
    return option;
  }

  std::vector<ArgumentField> fields;
};

ArgumentRows const& argument_rows();

void add_data_options(ArgumentRows& t);

/// The command-line options of other launchers and sharding libraries.
void add_launcher_options(ArgumentRows& t);

/// Adds the group "Optimizer and schedule".
void add_optimizer_options(ArgumentRows& t);

}  // namespace tessera::config::detail
