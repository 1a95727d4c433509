#include "commands.hpp"

#include "tessera/config/option_table.hpp"
#include "tessera/core/text.hpp"

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

/// What completes a value: words, or ":file" and its kind.
std::string source_word(config::Option const& option) {
  if (!option.choices.empty()) return join(option.choices, ",");
  std::string const& value = option.value_name;
  if (value == "DIR") return ":directory";
  if (value == "TEMPLATE") return ":template";
  if (value == "SITE") return ":site";
  bool const is_file = value.starts_with("FILE") || value == "PATH" || value == "PROGRAM" ||
                       value == "ARGUMENTS" || option.type == config::OptionType::path;
  return is_file ? ":file" : ":text";
}

/// A branch of a command function.
std::string case_of(std::string const& path, config::OptionTable const& table,
                    std::vector<std::string> positionals = {}) {
  std::vector<std::string> options, values, commands;
  for (auto const& option : table.options()) {
    if (option.support != config::Support::full) continue;
    if (option.group == "Commands") {
      commands.push_back(option.name);
    } else if (option.is_positional) {
      positionals.push_back(source_word(option));
    } else {
      options.push_back("--" + option.name);
      if (option.type == config::OptionType::boolean) continue;  // needs no value
      values.push_back(options.back() + ":" + source_word(option));
      if (option.letter)
        values.push_back(std::string{'-', option.letter} + ":" + source_word(option));
    }
  }
  return "    '" + path + "') options='" + join(options, " ") + "' values='" + join(values, " ") +
         "' positionals='" + join(positionals, " ") + "' commands='" + join(commands, " ") +
         "' ;;\n";
}

std::string cases(Command const& command, std::string const& path = "") {
  std::string out = case_of(path, command.rows());
  for (auto const& sub : command.commands())
    out += cases(*sub, path + (path.empty() ? "" : " ") + sub->name());
  return out;
}

std::string function(std::string const& name, std::string const& cases) {
  return name + "_words() {\n  case $1 in\n" + cases + "  esac\n}\n" + name +
         "() { _tessera_answer " + name + "_words; }\n";
}

}  // namespace

std::string bash_completion(Command const& app) {
  Command consolidates("zero-to-fp32");
  add_consolidate(consolidates);
  return shared + function("_tessera", cases(app)) +
         function("_tessera_train", case_of("", config::argument_table(), {":file"})) +
         function("_zero_to_fp32", cases(consolidates)) +
         "complete -F _tessera tessera\ncomplete -F _tessera_train tessera-train\n"
         "complete -F _zero_to_fp32 zero-to-fp32 zero_to_fp32\n";
}

}  // namespace tessera::cli
