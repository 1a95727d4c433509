#pragma once
/// A command of `tessera`: its arguments and options are rows of an option table, each with the
/// variable that it sets. --help, man pages, completion and messages derive from the rows.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config/option_field.hpp"
#include "tessera/config/option_table.hpp"

namespace tessera::cli {

class Command {
 public:
  using Store = std::function<void(ConfigTree const&)>;
  using Words = std::vector<std::string>;

  explicit Command(std::string name, std::string meaning = "");

  /// A subcommand; the reference stays valid.
  Command& add_command(std::string name, std::string meaning);

  /// "--json", "--nnodes,--num_nodes" or "-t,--tag TAG": an option; "run DIR": an argument. A last
  /// word is the name of its value in --help, and says what completes it. `-` and `_` are the same
  /// in names. The variable's value is the default, and it outlives the command.
  template <class T>
  config::Option& add(std::string const& names, T& variable, std::string meaning) {
    return add({config::option_type<T>(), names, config::to_tree(variable), std::move(meaning)},
               [&variable, names](ConfigTree const& value) {
                 config::assign(variable, value, names.substr(0, names.find_first_of(", ")));
               });
  }
  /// A flag that calls @p action.
  config::Option& add_flag(std::string const& names, std::string meaning,
                           std::function<void()> action);
  /// An option whose value is passed to @p store.
  struct Row {
    config::OptionType type;
    std::string names;
    ConfigTree default_value;
    std::string meaning;
  };
  config::Option& add(Row row, Store store);

  /// Takes the arguments that no row takes and, after "--", all words.
  enum class Rest {
    own,       ///< words of this command
    training,  ///< options of tessera-train, which may be given without "--" as well
    program    ///< a program and all words that follow its name
  };
  config::Option& add_rest(std::string const& name, Words& words, std::string meaning, Rest kind);

  /// What the command does.
  void run(std::function<void()> action) { action_ = std::move(action); }
  /// Text of --version.
  void version(std::function<std::string()> text) { version_ = std::move(text); }

  /// Reads the words and runs the command that they name, or prints its help or version.
  /// @throws UsageError with what is wrong and the --help of the command that was called
  void operator()(Words const& words);

  std::string const& name() const { return name_; }  ///< "prune"
  std::string full_name() const;                     ///< "tessera checkpoint prune"
  std::string const& meaning() const { return meaning_; }
  std::vector<std::unique_ptr<Command>> const& commands() const { return commands_; }
  /// Its arguments, its options with --help, and its subcommands.
  config::OptionTable rows() const;
  /// "tessera checkpoint prune [options] directory"
  std::string synopsis() const;

 private:
  class Reader;
  Command* find(std::string const& name) const;
  std::string help(std::string const& topic) const;

  std::string name_, meaning_;
  Command const* parent_ = nullptr;
  std::vector<std::unique_ptr<Command>> commands_;
  config::OptionTable table_;
  std::vector<Store> stores_;  ///< stores of the rows
  Words* rest_ = nullptr;
  Rest rest_kind_ = Rest::own;
  std::function<void()> action_;
  std::function<std::string()> version_;
};

}  // namespace tessera::cli
