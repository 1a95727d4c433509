#include "commands.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "tessera/config/option_table.hpp"
#include "tessera/core/text.hpp"
#include "tessera/train/report/version.hpp"

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

/// The rows of a table with their values and meanings, under the title of each group.
std::string entries(config::OptionTable const& table, char const* title) {
  std::string page, group;
  for (auto const& option : table.options()) {
    if (option.support == config::Support::refused || option.group == "Commands") continue;
    if (title && option.group != group) page += title + troff(option.group) + "\n";
    group = option.group;
    std::string const value = option.is_positional ? "" : config::shown_value(option);
    page += ".TP\n\\fB" + troff(config::shown_names(option)) + "\\fR" +
            (value.empty() ? "" : " \\fI" + troff(value) + "\\fR") + "\n" +
            troff(config::shown_meaning(option)) + "\n";
    if (option.support == config::Support::hint && !option.note.empty())
      page += troff("Accepted: " + option.note) + "\n";
  }
  return page;
}

/// The rows of a command and of its subcommands, depth first.
std::string describe(Command const& command) {
  std::string page = entries(command.rows(), nullptr);
  for (auto const& sub : command.commands())
    page += ".SS " + troff(sub->synopsis()) + "\n" + troff(sub->meaning()) + "\n" + describe(*sub);
  return page;
}

/// A command line and what it does.
using Example = std::pair<char const*, char const*>;

std::string examples(std::vector<Example> const& list) {
  std::string page;
  for (auto const& [command, meaning] : list)
    page += (page.empty() ? ".SH EXAMPLES\n" : ".PP\n") + troff(meaning) + "\n.PP\n.nf\n.RS 4\n" +
            troff(command) + "\n.RE\n.fi\n";
  return page;
}

std::string see_also(std::string const& program) {
  std::vector<std::string> pages;
  for (std::string const other : {"tessera", "tessera-train", "zero-to-fp32"})
    if (other != program) pages.push_back("\\fB" + troff(other) + "\\fR(1)");
  for (char const* other : {"mpirun", "srun"})
    if (program == "tessera-train") pages.push_back(std::string("\\fB") + other + "\\fR(1)");
  if (program == "tessera") pages.emplace_back("\\fBsbatch\\fR(1)");
  return ".SH SEE ALSO\n" + join(pages) +
         "\n.PP\nThe documentation in share/doc/Tessera of the installation: options, DeepSpeed "
         "configuration, exit codes, checkpoint format.\n";
}

}  // namespace

std::string training_page() {
  std::string page = head("tessera-train", "train language models with ZeRO under MPI");
  page +=
      ".SH SYNOPSIS\nsrun \\fBtessera\\-train\\fR [\\fIrun.json\\fR] [\\fIoptions\\fR]\n.SH "
      "DESCRIPTION\nTakes the arguments of Hugging Face's run_clm.py as flags or in a flat JSON "
      "file. Start one process per rank with srun or mpirun.\n.SH OPTIONS\n";
  page += entries(config::argument_table(), ".SS ");
  page += examples(
      {{"srun -n 8 tessera-train --model_name_or_path gpt2 --train_file text.txt \\\n"
        "  --do_train --deepspeed ds_config.json --output_dir run",
        "Train on 8 ranks with ZeRO as a DeepSpeed configuration says; the same command resumes:"},
       {"mpirun -np 2 tessera-train run.json --max_steps 20",
        "Arguments from a JSON file; flags override it:"},
       {"tessera-train --model_name_or_path run --train_file text.txt --do_eval --output_dir eval",
        "Evaluate a trained model on one rank:"}});
  return page + exit_codes() + see_also("tessera-train");
}

std::string tools_page(Command const& app) {
  std::string page = head("tessera", "tools for login nodes: checkpoints, configurations, jobs");
  page += ".SH SYNOPSIS\n\\fBtessera\\fR \\fIcommand\\fR [\\fIoptions\\fR]\n.SH COMMANDS\n";
  page += describe(app);
  page += examples(
      {{"tessera submit requeue --nodes 2 --time 12:00:00 -- run.json",
        "Queue a job that resumes until the training is complete:"},
       {"tessera status run", "See how far a run is:"},
       {"tessera doctor --why run", "Find out why it ended:"},
       {"tessera checkpoint verify run", "Compare all checksums of the newest checkpoint:"},
       {"tessera import ds_run run/checkpoints", "Continue a training of DeepSpeed:"},
       {"tessera tokenize gpt2 --file text.txt", "Tokenize a file:"},
       {"tessera tokenizer train text.txt --vocab_size 4096 --output tokenizer",
        "Train a tokenizer:"}});
  return page + exit_codes() + see_also("tessera");
}

std::string consolidation_page() {
  Command app("zero-to-fp32");
  app.version([] { return std::string(); });
  add_consolidate(app);
  std::string page = head("zero-to-fp32", "consolidate a ZeRO checkpoint into fp32 weights");
  page +=
      ".SH SYNOPSIS\n\\fBzero\\-to\\-fp32\\fR \\fIrun or checkpoint\\fR \\fIoutput\\fR "
      "[\\fIoptions\\fR]\n.SH OPTIONS\n";
  page += describe(app);
  page += examples(
      {{"zero-to-fp32 run model.safetensors", "The newest checkpoint of a run as one file:"},
       {"zero-to-fp32 run model --tag 1000 --dtype bf16 --max_shard_size 2GB",
        "The checkpoint of step 1000 as a Hugging Face directory in bf16:"},
       {"zero-to-fp32 ds_run pytorch_model.bin", "A checkpoint of DeepSpeed:"}});
  return page + exit_codes() + see_also("zero-to-fp32");
}

void add_manual(Command& app) {
  auto const which = std::make_shared<std::string>();
  auto& manual =
      app.add_command("manual", "Print a man page (for `man -l -`) or the bash completion script");
  manual.add("which", *which, "the program, or completion")
      .required()
      .one_of({"tessera-train", "tessera", "zero-to-fp32", "completion"});
  manual.run([which, &app] {
    std::string const& w = *which;
    fmt::print("{}", w == "tessera-train" ? training_page()
                     : w == "tessera"     ? tools_page(app)
                     : w == "completion"  ? bash_completion(app)
                                          : consolidation_page());
  });
}

}  // namespace tessera::cli
