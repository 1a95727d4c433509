#include "validators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <utility>

#include "tessera/config/option_table.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/data/text/text_files.hpp"
#include "tessera/model/families/registry.hpp"

namespace tessera::cli {
namespace {

std::string limit(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15
             ? with_commas(static_cast<std::int64_t>(value))
             : number_text(value);
}

CLI::Validator range(double low, double high, std::string expected) {
  return CLI::Validator(
      [low, high, expected = std::move(expected)](std::string& text) -> std::string {
        double value = NAN;
        if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
        return fmt::format("is '{}'; it must be {}", text, expected);
      },
      "");
}

}  // namespace

CLI::Validator number_from(double low) {
  return range(low, INFINITY, "a number of at least " + limit(low));
}

CLI::Validator number_from(double low, double high) {
  return range(low, high, fmt::format("a number from {} to {}", limit(low), limit(high)));
}

CLI::Validator one_of(std::vector<std::string> words) {
  std::string const shown = "{" + join(words, ",") + "}";
  return CLI::Validator(
      [words = std::move(words)](std::string& text) -> std::string {
        if (std::ranges::find(words, text) != words.end()) return "";
        std::string const near = config::nearest_name(text, words);
        return fmt::format("is '{}'; it must be one of {}{}", text, join(words),
                           near.empty() ? "" : "; did you mean " + near + "?");
      },
      shown);
}

namespace {

std::vector<CLI::App const*> commands_of(CLI::App const& app) {
  return app.get_subcommands([](CLI::App const*) { return true; });
}

std::vector<std::string> command_names(CLI::App const& app) {
  std::vector<std::string> out;
  for (auto const* command : commands_of(app)) out.push_back(command->get_name());
  return out;
}

std::vector<std::string> option_names(CLI::App const& app) {
  std::vector<std::string> out;
  for (auto const* option : app.get_options())
    for (auto const& name : option->get_lnames()) out.push_back(name);
  return out;
}

std::string did_you_mean(std::string const& dashes, std::string const& near) {
  return near.empty() ? "" : "; did you mean " + dashes + near + "?";
}

/// "--keep=3" -> "--keep"; empty for a value, also for a negative number.
std::string option_word(std::string const& word) {
  bool const dashed = word.size() > 1 && word[0] == '-' &&
                      std::isdigit(static_cast<unsigned char>(word[1])) == 0 && word[1] != '.';
  return dashed && word != "--" ? word.substr(0, word.find('=')) : "";
}

bool knows(CLI::App const& app, std::string const& option) {
  return app.get_option_no_throw(option) != nullptr;
}

/// The command that the words name, as far as they name one.
struct Called {
  CLI::App const* app;
  std::string name;       ///< "tessera checkpoint verify"
  std::size_t words = 0;  ///< words of the name, without the program
};

Called called(CLI::App const& app, std::vector<std::string> const& words) {
  Called out{&app, app.get_name()};
  while (out.words < words.size()) {
    auto const commands = commands_of(*out.app);
    auto const found = std::ranges::find(commands, words[out.words], &CLI::App::get_name);
    if (found == commands.end()) break;
    out.app = *found;
    out.name += " " + words[out.words++];
  }
  return out;
}

/// The first long option that the command does not know; empty: there is none.
std::string unknown_option(Called const& command, std::vector<std::string> const& words) {
  for (std::size_t i = command.words; i < words.size() && words[i] != "--"; ++i)
    if (auto const name = option_word(words[i]); !name.empty() && !knows(*command.app, name))
      return name;
  return "";
}

/// The positional or option that CLI11's text begins with: "--keep: ..." or "checkpoint is ...".
CLI::Option const* named_option(CLI::App const& app, std::string const& text) {
  for (auto const* option : app.get_options())
    for (auto const& name :
         {option->get_name(), option->get_name(true), option->get_name(false, true)})
      if (!name.empty() && text.starts_with(name) &&
          (text.size() == name.size() || text[name.size()] == ':' || text[name.size()] == ' '))
        return option;
  return nullptr;
}

std::string missing(Called const& command, CLI::ParseError const& error) {
  auto const* option = named_option(*command.app, error.what());
  if (!option) return error.what();
  bool const positional = option->get_positional();
  return concat(positional ? "argument " : "option ", option->get_name(positional), " is missing (",
                option->get_description(), ")");
}

/// "Could not convert: --keep = abc" and the text of validators, "--keep: is '-1'; ...".
std::string wrong_value(Called const& command, CLI::ParseError const& error) {
  std::string text = error.what();
  for (std::string const start : {"Could not convert: ", "The value for "})
    if (text.starts_with(start)) text = text.substr(start.size());
  if (auto const colon = text.find(": is '"); colon != std::string::npos) text.erase(colon, 1);
  auto const equals = text.find(" = ");
  if (equals == std::string::npos) return text;
  std::string const name = text.substr(0, equals), value = text.substr(equals + 3);
  auto const* option = command.app->get_option_no_throw(name);
  return concat(name, " is '", value, "'; it must be ",
                option && option->get_type_name().starts_with("FLOAT") ? "a number" : "an integer");
}

/// The words of "The following arguments were not expected: d c", which CLI11 lists from the last.
std::vector<std::string> words_after_colon(std::string const& text) {
  std::istringstream in(text.substr(text.find(": ") + 1));
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.insert(out.begin(), word);
  return out;
}

std::string problem(Called const& command, std::vector<std::string> const& words,
                    CLI::ParseError const& error) {
  auto const names = command_names(*command.app);
  bool const has_word = command.words < words.size();
  if (!names.empty() && has_word && option_word(words[command.words]).empty())
    return concat("unknown command '", words[command.words], "'",
                  did_you_mean("", config::nearest_name(words[command.words], names)));
  if (auto const option = unknown_option(command, words); !option.empty())
    return concat(
        "unknown option ", option,
        did_you_mean("--", config::nearest_name(option.substr(option.find_first_not_of('-')),
                                                option_names(*command.app))));
  if (!names.empty()) return concat(command.name, " needs a command: ", join(names));
  std::string const kind = error.get_name();
  if (kind == "RequiredError") return missing(command, error);
  if (kind == "ArgumentMismatch")
    if (auto const* option = named_option(*command.app, error.what()))
      return concat(option->get_name(), " needs a value");
  if (kind == "ConversionError" || kind == "ValidationError") return wrong_value(command, error);
  if (dynamic_cast<CLI::ExtrasError const*>(&error)) {  // its name is that of the command
    auto const extras = words_after_colon(error.what());
    return concat("unexpected ", plural(static_cast<std::int64_t>(extras.size()), "argument"), " '",
                  join(extras, "' '"), "'");
  }
  return error.what();
}

}  // namespace

std::string usage_error(CLI::App const& app, std::vector<std::string> const& words,
                        CLI::ParseError const& error) {
  Called const command = called(app, words);
  return concat(problem(command, words, error), "; see ", command.name, " --help");
}

namespace fs = std::filesystem;

std::int64_t known_hidden_size(config::TrainingArguments const& arguments) {
  fs::path const& given =
      arguments.config_name.empty() ? arguments.model_name_or_path : arguments.config_name;
  fs::path const file = fs::is_directory(given) ? given / "config.json" : given;
  if (!given.empty()) return fs::exists(file) ? model::hidden_size(ConfigTree::read(file)) : 0;
  if (arguments.model_type.empty()) return 0;
  return model::hidden_size(model::apply_overrides(model::default_config(arguments.model_type),
                                                   arguments.config_overrides));
}

void check_training_arguments(std::vector<std::string> const& words, int ranks) {
  auto const arguments = config::parse_arguments(words);
  std::pair<char const*, fs::path const*> const inputs[] = {
      {"--model_name_or_path", &arguments.model_name_or_path},
      {"--config_name", &arguments.config_name},
      {"--tokenizer_name", &arguments.tokenizer_name}};
  for (auto const& [name, path] : inputs)
    TESSERA_VALIDATE(path->empty() || fs::exists(*path), IoError, name, " ", path->string(),
                     " does not exist");
  for (auto const* text : {&arguments.train_file, &arguments.validation_file})
    if (!text->empty()) data::find_text_files(*text);
  auto const hidden_size = std::max<std::int64_t>(known_hidden_size(arguments), 1);
  if (ranks > 0) config::resolve(arguments, ranks, hidden_size);
}

}  // namespace tessera::cli
