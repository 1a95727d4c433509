#include "manual/completion.hpp"

#include <algorithm>

#include "checkpoint/consolidate_command.hpp"
#include "manual/value_kinds.hpp"
#include "tessera/config/option_table.hpp"

namespace tessera::cli {
namespace {

/// Functions that all programs share. A command function sets options, values ("--dtype:fp32,bf16
/// --output::file"), positionals (":directory :file") and commands for a path of commands.
char const* const shared =
    R"bash(# bash completion for Tessera, generated from the tables behind --help.
_tessera_fill() {
  local folder
  case $1 in
    :file) mapfile -t COMPREPLY < <(compgen -f -- "$2"); compopt -o filenames 2> /dev/null ;;
    :directory) mapfile -t COMPREPLY < <(compgen -d -- "$2"); compopt -o filenames 2> /dev/null ;;
    :template | :site)
      folder=$(readlink -f "$(type -P tessera)") folder=${folder%/*/*}/share/tessera/slurm
      if [[ $1 == :template ]]; then folder+='/*.sh'; else folder+='/sites/*.conf'; fi
      mapfile -t COMPREPLY < <(compgen -W "$(compgen -G "$folder" | sed 's|.*/||; s|\.[a-z]*$||')" -- "$2")
      [[ ${#COMPREPLY[@]} -gt 0 ]] || _tessera_fill :file "$2" ;;
    :text) COMPREPLY=() ;;
    *) mapfile -t COMPREPLY < <(compgen -W "${1//,/ }" -- "$2") ;;
  esac
}
_tessera_answer() {
  local describe=$1 options values positionals commands path='' i word entry count=0
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  if [[ $current == '=' ]]; then current=''; fi
  if [[ $previous == '=' ]]; then previous=${COMP_WORDS[COMP_CWORD - 2]}; fi
  $describe ''
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == '--' ]]; then
      describe=_tessera_train_words count=0
      $describe ''
    elif [[ $word == '=' ]]; then
      ((i++))
    elif [[ " $commands " == *" $word "* ]]; then
      path="${path:+$path }$word" count=0
      $describe "$path"
    elif [[ $word == -* ]]; then
      if [[ " $values" == *" $word:"* && ${COMP_WORDS[i + 1]} != '=' ]]; then ((i++)); fi
    else
      ((count++))
    fi
  done
  for entry in $values; do
    if [[ ${entry%%:*} == "$previous" ]]; then
      _tessera_fill "${entry#*:}" "$current"
      return
    fi
  done
  if [[ $current == -* || -n $commands || -z $positionals ]]; then
    _tessera_fill "$options $commands" "$current"
  else
    read -ra entry <<< "$positionals"
    if ((count >= ${#entry[@]})); then count=$((${#entry[@]} - 1)); fi
    _tessera_fill "${entry[count]}" "$current"
  fi
}
)bash";

std::string source_word(ValueKind const& kind) {
  switch (kind.source) {
    case ValueKind::Source::words: {
      std::string out;
      for (auto const& word : kind.words) out += (out.empty() ? "" : ",") + word;
      return out;
    }
    case ValueKind::Source::file:
      return ":file";
    case ValueKind::Source::directory:
      return ":directory";
    case ValueKind::Source::job_template:
      return ":template";
    case ValueKind::Source::site:
      return ":site";
    default:
      return ":text";
  }
}

/// What a command function sets.
struct Words {
  std::string options, values, positionals, commands;

  void add_option(std::string const& name, ValueKind const& kind) {
    append(options, name);
    if (kind.source != ValueKind::Source::flag) append(values, name + ":" + source_word(kind));
  }
  static void append(std::string& list, std::string const& word) {
    list += (list.empty() ? "" : " ") + word;
  }
  std::string as_case(std::string const& path) const {
    return "    '" + path + "') options='" + options + "' values='" + values + "' positionals='" +
           positionals + "' commands='" + commands + "' ;;\n";
  }
};

void add_cases(std::string& text, CLI::App const& app, std::string const& path) {
  Words words;
  for (auto const* option : options_of(app)) {
    for (auto const& name : option->get_lnames())
      words.add_option("--" + name, value_kind(*option));
    for (auto const& name : option->get_snames())
      if (value_kind(*option).source != ValueKind::Source::flag)
        Words::append(words.values, "-" + name + ":" + source_word(value_kind(*option)));
  }
  for (auto const* argument : arguments_of(app))
    Words::append(words.positionals, source_word(value_kind(*argument)));
  auto const commands = commands_of(app);
  for (auto const* command : commands) Words::append(words.commands, command->get_name());
  text += words.as_case(path);
  for (auto const* command : commands)
    add_cases(text, *command, path + (path.empty() ? "" : " ") + command->get_name());
}

std::string function(std::string const& name, std::string const& cases) {
  return name + "_words() {\n  case $1 in\n" + cases + "  esac\n}\n" + name +
         "() { _tessera_answer " + name + "_words; }\n";
}

std::string training_cases() {
  Words words;
  words.positionals = ":file";
  for (auto const& option : config::argument_table().options())
    if (option.support == config::Support::full)  // a boolean needs no value
      words.add_option("--" + option.name, option.type == config::OptionType::boolean
                                               ? ValueKind{ValueKind::Source::flag, "", {}}
                                               : value_kind(option));
  return words.as_case("");
}

}  // namespace

std::string bash_completion(CLI::App const& app) {
  std::string tools, consolidation;
  add_cases(tools, app, "");
  CLI::App consolidates;
  add_consolidate(consolidates);
  add_cases(consolidation, consolidates, "");
  return shared + function("_tessera", tools) + function("_tessera_train", training_cases()) +
         function("_zero_to_fp32", consolidation) +
         "complete -F _tessera tessera\ncomplete -F _tessera_train tessera-train\n"
         "complete -F _zero_to_fp32 zero-to-fp32 zero_to_fp32\n";
}

}  // namespace tessera::cli
