#include "tessera/config/word_reader.hpp"

#include <algorithm>
#include <cctype>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/core/words.hpp"

namespace tessera::config {

std::string suggestion(std::string_view name, std::vector<std::string> const& names) {
  if (auto const near = nearest_name(name, names); !near.empty())
    return concat("; did you mean --", near, "?");
  for (auto const& key : deepspeed_table().names())
    if (key == name || key.ends_with("." + std::string(name)))
      return concat("; ", key, " is a key of the DeepSpeed JSON, which --deepspeed FILE reads");
  return "";
}

bool WordReader::is_option(std::string const& word) {
  auto const first = word.find_first_not_of('-');
  return (first == 1 || first == 2) && std::isalpha(static_cast<unsigned char>(word[first])) != 0;
}

bool WordReader::has_value() const {
  return has_word() && !is_option(words_[next_]) && words_[next_] != "--";
}

std::optional<WordReader::Given> WordReader::read(std::string const& word) {
  bool const is_long = word.starts_with("--");
  std::string const body = word.substr(is_long ? 2 : 1);
  auto const equals = body.find('=');
  std::string name = body.substr(0, equals);
  std::optional<std::string> text;
  if (equals != std::string::npos) text = body.substr(equals + 1);
  Option const* option = is_long || name.size() == 1 ? table_.find(name) : nullptr;
  if (auto const* short_option = is_long ? nullptr : with_letter(body[0])) {
    option = short_option;
    name = option->name;
    if (body.size() > 1) text = body.substr(1);
  }
  shown_ = "--" + name;
  if (option && !option->is_positional) return Given{*option, value_of(*option, text)};
  bool const negated = is_long && (name.starts_with("no_") || name.starts_with("no-"));
  option = negated ? table_.find(name.substr(3)) : nullptr;
  if (!option || option->type != OptionType::boolean) return std::nullopt;
  TESSERA_VALIDATE(!text, UsageError, shown_, " takes no value; write --", option->name, "=",
                   text.value_or(""));
  return Given{*option, parsed_value(*option, "false", shown_)};
}

Option const* WordReader::with_letter(char letter) const {
  auto const& options = table_.options();
  auto const found = std::ranges::find(options, letter, &Option::letter);
  return found == options.end() ? nullptr : &*found;
}

ConfigTree WordReader::value_of(Option const& option, std::optional<std::string> const& text) {
  bool const is_flag = option.type == OptionType::boolean || option.label.ends_with("or true");
  bool const takes_word = has_value() && !(is_flag && flags_ == Flags::bare);
  TESSERA_VALIDATE(text || is_flag || takes_word, UsageError, shown_, " needs ",
                   expectation(option), "; write ", shown_,
                   "=VALUE if the value starts with a dash");
  if (option.type != OptionType::list)
    return parsed_value(option, text ? *text : takes_word ? next() : "true", shown_);
  ConfigTree::Array items;
  auto const add = [&](std::string const& word) {
    for (auto const& item : option.separated ? split(word, ',') : std::vector{word})
      items.emplace_back(item);
  };
  if (text) add(*text);
  while (!text && has_value()) add(next());
  return checked_value(option, items, shown_, Audience::flag);
}

void WordReader::skip_unknown(std::string const& word) {
  unknown_.push_back(word.substr(0, word.find('=')));
  while (has_value()) next();
}

void WordReader::refuse_unknown(std::vector<std::string> const& names) const {
  auto const name = [](std::string const& word) {
    return word.substr(word.find_first_not_of('-'));
  };
  if (unknown_.size() == 1)
    throw UsageError(concat("unknown option ", unknown_[0], suggestion(name(unknown_[0]), names)));
  std::vector<std::string> said;
  for (auto const& word : unknown_) {
    auto const near = nearest_name(name(word), names);
    said.push_back(word + (near.empty() ? "" : " (did you mean --" + near + "?)"));
  }
  TESSERA_VALIDATE(said.empty(), UsageError, "unknown options ", join(said));
}

OptionValues parse_flags(OptionTable const& table, std::vector<std::string> const& words,
                         std::vector<std::string>& positionals) {
  WordReader reader(table, words, WordReader::Flags::with_values);
  OptionValues out;
  while (reader.has_value()) positionals.push_back(reader.next());
  while (reader.has_word()) {
    auto const& word = reader.next();
    TESSERA_VALIDATE(WordReader::is_option(word), UsageError, "unexpected word '", word, "' after ",
                     reader.shown(),
                     "; options are written --name value (a value with blanks needs quotes)");
    if (auto given = reader.read(word))
      out.entries[given->option.name] = {std::move(given->value), Origin::flag};
    else
      reader.skip_unknown(word);
  }
  try {
    reader.refuse_unknown(table.names());
  } catch (UsageError const& error) {
    throw UsageError(concat(error.what(), "; see tessera-train --help"));
  }
  return out;
}

}  // namespace tessera::config
