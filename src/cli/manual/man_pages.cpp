#include "manual/man_pages.hpp"

#include <fmt/format.h>

#include "checkpoint/consolidate_command.hpp"
#include "tessera/config/arguments_table.hpp"
#include "tessera/train/version.hpp"

namespace tessera::cli {
namespace {

/// Text for troff: backslashes and hyphens are escaped, and no line starts with a request
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
  std::string version = train::version_text(program, train::build_versions());
  version = version.substr(0, version.find('\n'));
  return fmt::format(".TH \"{}\" 1 \"{}\" \"{}\" \"Tessera\"\n.SH NAME\n{} \\- {}\n", program,
                     train::source_date(), version, troff(program).substr(2),
                     troff(sentence).substr(2));
}

std::string exit_codes() {
  return ".SH EXIT STATUS\n.TP\n0\nsuccess\n.TP\n64\ncommand line usage error\n.TP\n65\nmalformed "
         "or damaged data\n.TP\n69\na rank was lost\n.TP\n70\ninternal error, or out of "
         "memory\n.TP\n74\na file could not be read or written\n.TP\n75\nstopped early after "
         "saving a checkpoint; run the same command again\n.TP\n78\ninvalid configuration\n";
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

}  // namespace

std::string training_page() {
  std::string page = head("tessera-train", "train language models with ZeRO under MPI");
  page +=
      ".SH SYNOPSIS\nsrun \\fBtessera\\-train\\fR [\\fIrun.json\\fR] [\\fIoptions\\fR]\n.SH "
      "DESCRIPTION\nTakes the arguments of Hugging Face's run_clm.py as flags or in a flat JSON "
      "file. Start one process per rank with srun or mpirun.\n.SH OPTIONS\n";
  std::string group;
  for (auto const& option : config::argument_table().options()) {
    if (option.support == config::Support::refused) continue;
    if (option.group != group) page += ".SS " + troff(option.group) + "\n";
    group = option.group;
    std::string const default_text =
        option.default_value.is_null() ? "" : " [" + option.default_value.dump() + "]";
    page += ".TP\n\\fB" + troff("--" + option.name) + "\\fR\n" +
            troff(option.meaning + default_text) + "\n";
    if (option.support == config::Support::hint && !option.note.empty())
      page += troff("Accepted: " + option.note) + "\n";
  }
  return page + exit_codes();
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

}  // namespace tessera::cli
