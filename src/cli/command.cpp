#include "command.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "tessera/config/option_values.hpp"
#include "tessera/config/word_reader.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/core/words.hpp"

namespace tessera::cli {
namespace {

bool is_training_option(std::string const& name) {
  auto const& table = config::argument_table();
  bool const negated = name.starts_with("no_") || name.starts_with("no-");
  return table.find(name) || (negated && table.find(name.substr(3)));
}

}  // namespace

Command::Command(std::string name, std::string meaning)
    : name_(std::move(name)), meaning_(std::move(meaning)) {}

Command& Command::add_command(std::string name, std::string meaning) {
  commands_.push_back(std::make_unique<Command>(std::move(name), std::move(meaning)));
  commands_.back()->parent_ = this;
  return *commands_.back();
}

config::Option& Command::add(Row row, Store store) {
  stores_.push_back(std::move(store));
  config::Option option;
  option.type = row.type;
  option.default_value = std::move(row.default_value);
  option.meaning = std::move(row.meaning);
  option.is_positional = !row.names.starts_with('-');
  auto const space = std::min(row.names.find(' '), row.names.size());
  option.value_name = row.names.substr(std::min(space + 1, row.names.size()));
  for (auto const& name : split(row.names.substr(0, space), ','))
    if (name.size() == 2 && name[0] == '-')
      option.letter = name[1];
    else if (option.name.empty())
      option.name = option.is_positional ? name : name.substr(2);
    else
      option.alias(name.substr(2));
  return table_.add(std::move(option));
}

config::Option& Command::add_flag(std::string const& names, std::string meaning,
                                  std::function<void()> action) {
  return add({config::OptionType::boolean, names, false, std::move(meaning)},
             [action = std::move(action)](ConfigTree const& value) {
               if (value.as_bool()) action();
             });
}

config::Option& Command::add_rest(std::string const& name, Words& words, std::string meaning,
                                  Rest kind) {
  rest_ = &words;
  rest_kind_ = kind;
  return add(name, words, std::move(meaning));
}

std::string Command::full_name() const {
  return (parent_ ? parent_->full_name() + " " : "") + name_;
}

Command* Command::find(std::string const& name) const {
  auto const found = std::ranges::find(commands_, name, [](auto const& c) { return c->name_; });
  return found == commands_.end() ? nullptr : found->get();
}

config::OptionTable Command::rows() const {
  config::OptionTable out;
  out.group("Arguments");
  for (auto const& option : table_.options())
    if (option.is_positional) out.add(option);
  out.group("Options");
  for (auto const& option : table_.options())
    if (!option.is_positional) out.add(option);
  auto const add = [&](char const* name, std::string const& meaning) -> config::Option& {
    return out.add(config::OptionType::boolean, name, false, meaning);
  };
  auto& help = add("help", "print this text, or explain one option");
  help.value_name = "[OPTION]";
  help.letter = 'h';
  if (version_) add("version", "print the versions of this program and its libraries");
  out.group("Commands");
  for (auto const& command : commands_)
    add(command->name_.c_str(), command->meaning_).is_positional = true;
  return out;
}

std::string Command::synopsis() const {
  std::string out = full_name();
  if (!commands_.empty()) return out + " command ...";
  out += " [options]";
  for (auto const& option : table_.options())
    if (option.is_positional) {
      std::string const name = option.name + (option.type == config::OptionType::list ? "..." : "");
      out += option.is_required ? " " + name : " [" + name + "]";
    }
  return out;
}

/// @param topic  an option or a subcommand; empty: the command itself
std::string Command::help(std::string const& topic) const {
  if (topic.empty()) return config::help(rows(), "usage: " + synopsis() + "\n" + meaning_ + "\n");
  if (auto const* command = find(topic)) return command->help("");
  auto const table = rows();
  if (auto const* option =
          table.find(topic.substr(std::min(topic.find_first_not_of('-'), topic.size()))))
    return concat(config::shown_names(*option), "\n", config::explain(*option));
  return config::explain(topic);
}

/// Reads the words of one command.
class Command::Reader {
 public:
  Reader(Command const& command, Words words)
      : command_(command),
        words_(command.table_, std::move(words), config::WordReader::Flags::bare) {}

  /// The text of --help or --version; empty: the variables are set.
  std::string read() {
    while (words_.has_word()) {
      std::string const word = words_.next();
      if (word == "--") {
        read_all(after_);
      } else if (!config::WordReader::is_option(word)) {
        read_argument(word);
      } else if (word == "--help" || word == "-h") {
        std::string const topic = words_.has_word() ? words_.next() : "";
        return command_.help(topic == "--" ? "" : topic);
      } else if (word == "--version" && command_.version_) {
        return command_.version_();
      } else {
        read_option(word);
      }
    }
    words_.refuse_unknown(option_names());
    check();
    store();
    return "";
  }

 private:
  using Option = config::Option;

  void read_all(Words& to) {
    while (words_.has_word())
      if (command_.rest_)
        to.push_back(words_.next());
      else
        read_argument(words_.next());
  }

  void read_argument(std::string const& word) {
    if (in_training_) return training_.push_back(word);
    if (!command_.commands_.empty()) unknown_command(word);
    for (auto const& option : command_.table_.options())
      if (option.is_positional && option.type != config::OptionType::list && !given(option.name))
        return set(option, config::parsed_value(option, word, option.name));
    extra_.push_back(word);
    if (command_.rest_ && command_.rest_kind_ == Rest::program) read_all(extra_);
  }

  void read_option(std::string const& word) {
    auto given = words_.read(word);
    in_training_ = !given && takes_training_options() &&
                   is_training_option(word.substr(2, word.find('=') - 2));
    if (in_training_)
      training_.push_back(word);
    else if (given)
      set(given->option, std::move(given->value));
    else
      words_.skip_unknown(word);
  }

  bool takes_training_options() const {
    return command_.rest_ && command_.rest_kind_ == Rest::training;
  }
  Words option_names() const {
    Words names;
    for (auto const& row : command_.table_.options())
      if (!row.is_positional) {
        names.push_back(row.name);
        names.insert(names.end(), row.aliases.begin(), row.aliases.end());
      }
    if (takes_training_options())
      for (auto const& name : config::argument_table().names()) names.push_back(name);
    return names;
  }

  /// The last of several values counts; lists are joined.
  void set(Option const& option, ConfigTree value) {
    auto& stored = values_[option.name];
    if (option.type == config::OptionType::list && stored.is_array()) {
      auto items = stored.as_array();
      items.insert(items.end(), value.as_array().begin(), value.as_array().end());
      value = std::move(items);
    }
    stored = std::move(value);
  }
  ConfigTree const* given(std::string const& name) const {
    auto const found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
  }

  Words command_names() const {
    Words names;
    for (auto const& command : command_.commands_) names.push_back(command->name_);
    return names;
  }
  [[noreturn]] void unknown_command(std::string const& word) const {
    std::string const near = config::nearest_name(word, command_names());
    throw UsageError(
        concat("unknown command '", word, "'", near.empty() ? "" : "; did you mean " + near + "?"));
  }

  void check() const {
    TESSERA_VALIDATE(command_.commands_.empty(), UsageError, command_.full_name(),
                     " needs a command: ", join(command_names()));
    bool const has_rest = !extra_.empty() || !training_.empty() || !after_.empty();
    auto const dashed = [&](std::string const& name) {
      return (command_.table_.find(name)->is_positional ? "" : "--") + name;
    };
    for (auto const& option : command_.table_.options()) {
      bool const is_rest = option.is_positional && option.type == config::OptionType::list;
      bool const is_given = is_rest ? has_rest : given(option.name) != nullptr;
      TESSERA_VALIDATE(is_given || !option.is_required, UsageError,
                       option.is_positional ? "argument " : "option ", dashed(option.name),
                       " is missing (", option.meaning, ")");
      if (!is_given) continue;
      for (auto const& other : option.needed)
        TESSERA_VALIDATE(given(other), UsageError, dashed(option.name), " needs ", dashed(other));
      for (auto const& other : option.excluded)
        TESSERA_VALIDATE(!given(other), UsageError, dashed(option.name), " and ", dashed(other),
                         " contradict each other; leave one out");
    }
    TESSERA_VALIDATE(extra_.empty() || command_.rest_, UsageError, "unexpected ",
                     plural(std::ssize(extra_), "argument"), " '", join(extra_, "' '"), "'");
  }

  void store() const {
    auto const& options = command_.table_.options();
    for (std::size_t row = 0; row < options.size(); ++row)
      if (auto const* value = given(options[row].name)) command_.stores_[row](*value);
    if (!command_.rest_) return;
    *command_.rest_ = extra_;
    for (auto const* words : {&training_, &after_})
      command_.rest_->insert(command_.rest_->end(), words->begin(), words->end());
  }

  Command const& command_;
  config::WordReader words_;
  std::map<std::string, ConfigTree> values_;
  bool in_training_ = false;        ///< the last option was one of tessera-train
  Words extra_, training_, after_;  ///< arguments, options of tessera-train, words after "--"
};

void Command::operator()(Words const& words) {
  if (auto* command = words.empty() ? nullptr : find(words[0]))
    return (*command)({words.begin() + 1, words.end()});
  std::string text;
  try {
    text = Reader(*this, words).read();
  } catch (UsageError const& error) {
    throw UsageError(concat(error.what(), "; see ", full_name(), " --help"));
  }
  if (!text.empty())
    std::fputs(text.c_str(), stdout);
  else if (action_)
    action_();
}

}  // namespace tessera::cli
