#include "commands.hpp"

#include <fmt/format.h>

#include <memory>

#include "tessera/config/option_table.hpp"
#include "tessera/core/text.hpp"
#include "tessera/train/report/version.hpp"

namespace tessera::cli {
namespace {

/// Text for troff: backslashes and hyphens are escaped, and no line starts with a request
/// character.
std::string troff(std::string const& text) {
  std::string out = "\\&";
  for (char const c : text) {
    if (c == '\\' || c == '-') out += '\\';
    out += c == '\\' ? 'e' : c;
    if (c == '\n') out += "\\&";
  }
  return out;
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

/// What a page has besides the tables.
struct Page {
  std::string program, sentence, synopsis;
  std::vector<std::pair<char const*, char const*>> examples;  ///< a command line, what it does
  std::string see_also;
};

std::string text_of(Page const& page, std::string const& rows) {
  std::string version = train::version_text(page.program, train::build_versions());
  version = version.substr(0, version.find('\n'));
  std::string out = fmt::format(
      ".TH \"{0}\" 1 \"{1}\" \"{2}\" \"Tessera\"\n.SH NAME\n{3} \\- {4}\n.SH SYNOPSIS\n{5}\n{6}"
      ".SH EXAMPLES\n",
      page.program, train::source_date(), version, troff(page.program).substr(2),
      troff(page.sentence).substr(2), troff(page.synopsis), rows);
  for (auto const& [command, meaning] : page.examples)
    out += ".PP\n" + troff(meaning) + "\n.PP\n.nf\n.RS 4\n" + troff(command) + "\n.RE\n.fi\n";
  out += ".SH EXIT STATUS\n";
  for (auto const& [code, meaning] :
       {std::pair{0, "success"}, std::pair{64, "command line usage error"},
        std::pair{65, "malformed or damaged data"}, std::pair{69, "a rank was lost"},
        std::pair{70, "internal error, or out of memory"},
        std::pair{74, "a file could not be read or written"},
        std::pair{75, "stopped early after saving a checkpoint; run the same command again"},
        std::pair{78, "invalid configuration"}})
    out += fmt::format(".TP\n{}\n{}\n", code, meaning);
  return out + ".SH SEE ALSO\n" + page.see_also +
         "\n.PP\nThe documentation in share/doc/Tessera of the installation: options, DeepSpeed "
         "configuration, exit codes, checkpoint format.\n";
}

}  // namespace

std::string training_page() {
  return text_of(
      {"tessera-train",
       "train language models with ZeRO under MPI",
       "srun tessera-train [run.json] [options]",
       {{"srun -n 8 tessera-train --model_name_or_path gpt2 --train_file text.txt \\\n"
         "  --do_train --deepspeed ds_config.json --output_dir run",
         "Train on 8 ranks with ZeRO as a DeepSpeed configuration says; the same command resumes:"},
        {"mpirun -np 2 tessera-train run.json --max_steps 20",
         "Arguments from a JSON file; flags override it:"},
        {"tessera-train --model_name_or_path run --train_file text.txt --do_eval --output_dir eval",
         "Evaluate a trained model on one rank:"}},
       "\\fBtessera\\fR(1), \\fBzero\\-to\\-fp32\\fR(1), \\fBmpirun\\fR(1), \\fBsrun\\fR(1)"},
      ".SH DESCRIPTION\nTakes the arguments of Hugging Face's run_clm.py as flags or in a flat "
      "JSON file. Start one process per rank with srun or mpirun.\n.SH OPTIONS\n" +
          entries(config::argument_table(), ".SS "));
}

std::string tools_page(Command const& app) {
  return text_of(
      {"tessera",
       "tools for login nodes: checkpoints, configurations, jobs",
       "tessera command [options]",
       {{"tessera submit requeue --nodes 2 --time 12:00:00 -- run.json",
         "Queue a job that resumes until the training is complete:"},
        {"tessera status run", "See how far a run is:"},
        {"tessera doctor --why run", "Find out why it ended:"},
        {"tessera checkpoint verify run", "Compare all checksums of the newest checkpoint:"},
        {"tessera import ds_run run/checkpoints", "Continue a training of DeepSpeed:"},
        {"tessera tokenize gpt2 --file text.txt", "Tokenize a file:"}},
       "\\fBtessera\\-train\\fR(1), \\fBzero\\-to\\-fp32\\fR(1), \\fBsbatch\\fR(1)"},
      ".SH COMMANDS\n" + describe(app));
}

std::string consolidation_page() {
  Command app("zero-to-fp32");
  app.version([] { return std::string(); });
  add_consolidate(app);
  return text_of(
      {"zero-to-fp32",
       "consolidate a ZeRO checkpoint into fp32 weights",
       app.synopsis(),
       {{"zero-to-fp32 run model.safetensors", "The newest checkpoint of a run as one file:"},
        {"zero-to-fp32 run model --tag 1000 --dtype bf16 --max_shard_size 2GB",
         "The checkpoint of step 1000 as a Hugging Face directory in bf16:"},
        {"zero-to-fp32 ds_run pytorch_model.bin", "A checkpoint of DeepSpeed:"}},
       "\\fBtessera\\fR(1), \\fBtessera\\-train\\fR(1)"},
      ".SH OPTIONS\n" + describe(app));
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
