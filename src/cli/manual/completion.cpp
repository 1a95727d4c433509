#include "manual/completion.hpp"

#include <fmt/format.h>

#include "tessera/config/arguments_table.hpp"

namespace tessera::cli {
namespace {

std::string words_of(CLI::App const& app) {
  std::string words;
  for (auto const* option : app.get_options())
    for (auto const& name : option->get_lnames()) words += " --" + name;
  for (auto const* sub : app.get_subcommands([](CLI::App const*) { return true; }))
    words += " " + sub->get_name();
  return words.empty() ? "" : words.substr(1);
}

}  // namespace

std::string bash_completion(CLI::App const& app) {
  std::string text =
      "# bash completion for Tessera, generated from the tables behind --help.\n_tessera() {\n  "
      "local words current=${COMP_WORDS[COMP_CWORD]}\n  case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" "
      "in\n";
  std::string second;
  for (auto const* sub : app.get_subcommands([](CLI::App const*) { return true; })) {
    for (auto const* leaf : sub->get_subcommands([](CLI::App const*) { return true; }))
      text += fmt::format("    \"{} {}\") words='{}' ;;\n", sub->get_name(), leaf->get_name(),
                          words_of(*leaf));
    second += fmt::format("    \"{} \"*) words='{}' ;;\n", sub->get_name(), words_of(*sub));
  }
  text += second + fmt::format("    *) words='{}' ;;\n  esac\n", words_of(app));
  text += "  [[ $COMP_CWORD -gt 1 ]] || words='" + words_of(app) + "'\n";
  text +=
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n}\ncomplete -o default "
      "-F _tessera tessera\n\n_tessera_train() {\n  local words='";
  for (auto const& option : config::argument_table().options())
    if (option.support == config::Support::full) text += "--" + option.name + " ";
  return text +
         "'\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- "
         "\"${COMP_WORDS[COMP_CWORD]}\")\n}\ncomplete -o default -F _tessera_train tessera-train\n";
}

}  // namespace tessera::cli
