// tessera manual: man pages and shell completion, from the same tables as --help.
#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "tessera/core/error.hpp"
#include "tessera/train/arguments.hpp"
#include "tessera/train/version.hpp"

namespace tessera::cli {
namespace {

/// Text for troff: backslashes and hyphens are literal, and a line never starts with a request
/// character.
std::string troff(std::string const& text) {
  std::string out;
  for (char const c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    if (c == '\n') out += "\\&";
  }
  return "\\&" + out;
}

std::string head(std::string const& program, std::string const& sentence) {
  std::string version = train::version_text(program);
  version = version.substr(0, version.find('\n'));
  return fmt::format(".TH \"{}\" 1 \"{}\" \"{}\" \"Tessera\"\n.SH NAME\n{} \\- {}\n", program,
                     train::source_date(), version, troff(program).substr(2),
                     troff(sentence).substr(2));
}

std::string exit_codes() {
  return ".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n64\nusage: the command line\n.TP\n65\nmalformed or "
         "damaged data\n.TP\n69\na rank was lost\n"
         ".TP\n70\ninternal error or out of memory\n.TP\n74\na file could not be read or "
         "written\n.TP\n75\nstopped early, saved; run the same command again\n"
         ".TP\n78\na configuration that cannot work\n";
}

std::string training_page() {
  std::string page = head("tessera-train", "train language models with ZeRO under MPI");
  page +=
      ".SH SYNOPSIS\nsrun \\fBtessera\\-train\\fR [\\fIrun.json\\fR] [\\fIoptions\\fR]\n.SH "
      "DESCRIPTION\n"
      "Takes the arguments of Hugging Face's run_clm.py as flags or as a flat JSON file. One "
      "process a rank, started by srun or mpirun.\n.SH OPTIONS\n";
  std::string group;
  for (auto const& option : train::argument_table().options()) {
    if (option.support == Support::refused) continue;
    if (option.group != group) page += ".SS " + troff(option.group) + "\n";
    group = option.group;
    std::string const default_text =
        option.default_value.is_null() ? "" : " [" + option.default_value.dump() + "]";
    page += ".TP\n\\fB" + troff("--" + option.name) + "\\fR\n" +
            troff(option.meaning + default_text) + "\n";
    if (option.support == Support::hint && !option.note.empty())
      page += troff("Accepted: " + option.note) + "\n";
  }
  return page + exit_codes();
}

/// Options and subcommands of a CLI11 app, depth first.
void describe(CLI::App const& app, std::string const& name, std::string& page) {
  for (auto const* option : app.get_options()) {
    std::string const names = option->get_name(option->get_positional(), true);
    page += ".TP\n\\fB" + troff(names) + "\\fR\n" + troff(option->get_description()) + "\n";
  }
  for (auto const* sub : app.get_subcommands([](CLI::App const*) { return true; })) {
    std::string const full = name + " " + sub->get_name();
    page += ".SS " + troff(full) + "\n" + troff(sub->get_description()) + "\n";
    describe(*sub, full, page);
  }
}

std::string tools_page(CLI::App const& app) {
  std::string page = head("tessera", "tools for login nodes: checkpoints, configurations, jobs");
  page += ".SH SYNOPSIS\n\\fBtessera\\fR \\fIcommand\\fR [\\fIoptions\\fR]\n.SH COMMANDS\n";
  describe(app, "tessera", page);
  return page + exit_codes();
}

std::string consolidation_page() {
  CLI::App app;
  app.set_version_flag("--version", "", "Program and libraries");
  add_consolidate(app);
  std::string page = head("zero-to-fp32", "consolidate a ZeRO checkpoint into fp32 weights");
  page +=
      ".SH SYNOPSIS\n\\fBzero\\-to\\-fp32\\fR \\fIrun or checkpoint\\fR \\fIoutput\\fR "
      "[\\fIoptions\\fR]\n.SH OPTIONS\n";
  describe(app, "zero-to-fp32", page);
  return page + exit_codes();
}

std::string words_of(CLI::App const& app) {
  std::string words;
  for (auto const* option : app.get_options())
    for (auto const& name : option->get_lnames()) words += " --" + name;
  for (auto const* sub : app.get_subcommands([](CLI::App const*) { return true; }))
    words += " " + sub->get_name();
  return words.empty() ? "" : words.substr(1);
}

/// The words of a subcommand, or of the program when none is given yet; files otherwise.
std::string completion(CLI::App const& app) {
  std::string text =
      "# bash completion for Tessera, from the programs' own tables.\n_tessera() {\n  local words "
      "current=${COMP_WORDS[COMP_CWORD]}\n"
      "  case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n";
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
  for (auto const& option : train::argument_table().options())
    if (option.support == Support::full) text += "--" + option.name + " ";
  return text +
         "'\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- "
         "\"${COMP_WORDS[COMP_CWORD]}\")\n}\ncomplete -o default -F _tessera_train tessera-train\n";
}

}  // namespace

void add_manual(CLI::App& app) {
  auto const which = std::make_shared<std::string>();
  auto* manual =
      app.add_subcommand("manual", "Print a man page (for `man -l -`) or the bash completion");
  manual->add_option("which", *which, "tessera-train, tessera, zero-to-fp32 or completion")
      ->required()
      ->check(CLI::IsMember({"tessera-train", "tessera", "zero-to-fp32", "completion"}));
  manual->callback([which, &app] {
    std::string const& w = *which;
    fmt::print("{}", w == "tessera-train" ? training_page()
                     : w == "tessera"     ? tools_page(app)
                     : w == "completion"  ? completion(app)
                                          : consolidation_page());
  });
}

}  // namespace tessera::cli
