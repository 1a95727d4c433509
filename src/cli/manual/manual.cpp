#include "manual/manual.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "tessera/config/option_table.hpp"
#include "tessera/core/text.hpp"
#include "tessera/train/report/version.hpp"
#include "validators.hpp"

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

/// Name and value of an option, and its meaning.
std::string entry(std::string const& names, std::string const& value, std::string const& meaning) {
  return ".TP\n\\fB" + troff(names) + "\\fR" +
         (value.empty() ? "" : " \\fI" + troff(value) + "\\fR") + "\n" + troff(meaning) + "\n";
}

/// Options and subcommands of a CLI11 app, depth first.
void describe(CLI::App const& app, std::string const& name, std::string& page) {
  for (auto const* argument : arguments_of(app))
    page += entry(argument->get_name(true), "", argument->get_description());
  for (auto const* option : options_of(app))
    page +=
        entry(option->get_name(false, true), value_kind(*option).name, option->get_description());
  for (auto const* command : commands_of(app)) {
    std::string const full = name + " " + command->get_name();
    std::string usage = full;
    for (auto const* argument : arguments_of(*command)) usage += " " + argument->get_name(true);
    page += ".SS " + troff(usage) + "\n" + troff(command->get_description()) + "\n";
    describe(*command, full, page);
  }
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
  std::string group;
  for (auto const& option : config::argument_table().options()) {
    if (option.support == config::Support::refused) continue;
    if (option.group != group) page += ".SS " + troff(option.group) + "\n";
    group = option.group;
    std::string const default_text =
        option.default_value.is_null() ? "" : " [" + option.default_value.dump() + "]";
    page += entry("--" + option.name, value_kind(option).name, option.meaning + default_text);
    if (option.support == config::Support::hint && !option.note.empty())
      page += troff("Accepted: " + option.note) + "\n";
  }
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

std::string tools_page(CLI::App const& app) {
  std::string page = head("tessera", "tools for login nodes: checkpoints, configurations, jobs");
  page += ".SH SYNOPSIS\n\\fBtessera\\fR \\fIcommand\\fR [\\fIoptions\\fR]\n.SH COMMANDS\n";
  describe(app, "tessera", page);
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
  CLI::App app;
  app.set_version_flag("--version", "", "Program and libraries");
  add_consolidate(app);
  std::string page = head("zero-to-fp32", "consolidate a ZeRO checkpoint into fp32 weights");
  page +=
      ".SH SYNOPSIS\n\\fBzero\\-to\\-fp32\\fR \\fIrun or checkpoint\\fR \\fIoutput\\fR "
      "[\\fIoptions\\fR]\n.SH OPTIONS\n";
  describe(app, "zero-to-fp32", page);
  page += examples(
      {{"zero-to-fp32 run model.safetensors", "The newest checkpoint of a run as one file:"},
       {"zero-to-fp32 run model --tag 1000 --dtype bf16 --max_shard_size 2GB",
        "The checkpoint of step 1000 as a Hugging Face directory in bf16:"},
       {"zero-to-fp32 ds_run pytorch_model.bin", "A checkpoint of DeepSpeed:"}});
  return page + exit_codes() + see_also("zero-to-fp32");
}

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

namespace {

using Source = ValueKind::Source;

struct Known {
  char const* option;
  Source source;
  char const* name;
};

/// Names mean the same in every command.
constexpr Known known[] = {
    {"checkpoint", Source::directory, "DIR"},
    {"checkpoint_dir", Source::directory, "DIR"},
    {"directory", Source::directory, "DIR"},
    {"run_directory", Source::directory, "DIR"},
    {"run", Source::directory, "DIR"},
    {"destination", Source::directory, "DIR"},
    {"source", Source::directory, "DIR"},
    {"output_dir", Source::directory, "DIR"},
    {"tokenizer", Source::directory, "DIR"},
    {"dir", Source::directory, "DIR"},
    {"like", Source::directory, "DIR"},
    {"why", Source::directory, "DIR"},
    {"enable_each_rank_log", Source::directory, "DIR"},
    {"a", Source::file, "PATH"},
    {"b", Source::file, "PATH"},
    {"output", Source::file, "PATH"},
    {"config", Source::file, "PATH"},
    {"deepspeed_json", Source::file, "FILE"},
    {"file", Source::file, "FILE"},
    {"files", Source::file, "FILES"},
    {"log", Source::file, "FILE"},
    {"hostfile", Source::file, "FILE"},
    {"program", Source::file, "PROGRAM"},
    {"template", Source::job_template, "TEMPLATE"},
    {"site", Source::site, "SITE"},
    {"tag", Source::text, "TAG"},
    {"tag_a", Source::text, "TAG"},
    {"tag_b", Source::text, "TAG"},
    {"max_shard_size", Source::text, "SIZE"},
    {"older-than", Source::text, "AGE"},
    {"time", Source::text, "TIME"},
    {"states", Source::text, "NAMES"},
    {"ranks-per-file", Source::text, "N|all"},
    {"text", Source::text, "TEXT"},
    {"arguments", Source::file, "ARGUMENTS"},
    {"flags", Source::file, "ARGUMENTS"},
};

ValueKind of_words(std::vector<std::string> words) {
  ValueKind out{Source::words, join(words, "|"), {}};
  out.words = std::move(words);
  return out;
}

/// The words of "TEXT:{fp32,bf16}".
std::vector<std::string> words_in(std::string const& type) {
  auto const open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  std::vector<std::string> out{""};
  for (char const c : type.substr(open + 1, close - open - 1))
    if (c == ',')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

std::string bare_name(CLI::Option const& option) {
  if (option.get_positional()) return option.get_name(true);
  return option.get_lnames().empty() ? option.get_snames().front() : option.get_lnames().front();
}

}  // namespace

ValueKind value_kind(CLI::Option const& option) {
  if (!option.get_positional() && option.get_items_expected_max() == 0)
    return {Source::flag, "", {}};
  std::string const name = bare_name(option), type = option.get_type_name();
  if (auto words = words_in(type); !words.empty()) return of_words(std::move(words));
  if (name == "dtype") return of_words({"fp32", "bf16", "fp16"});
  if (name == "compress") return of_words({"none", "gzip"});
  auto const* found = std::ranges::find(known, name, [](Known const& k) { return k.option; });
  if (found != std::end(known)) return {found->source, found->name, {}};
  bool const integer = type.starts_with("INT") || type.starts_with("UINT");
  return {Source::text, integer ? "N" : type.starts_with("FLOAT") ? "X" : "VALUE", {}};
}

ValueKind value_kind(config::Option const& option) {
  switch (option.type) {
    case config::OptionType::boolean:
      return of_words({"true", "false"});
    case config::OptionType::choice:
      return of_words(option.choices);
    case config::OptionType::path:
      return {Source::file, "PATH", {}};
    case config::OptionType::integer:
      return {Source::text, "N", {}};
    case config::OptionType::real:
      return {Source::text, "X", {}};
    case config::OptionType::list:
      if (!option.choices.empty()) return of_words(option.choices);
      return {Source::text, "WORD...", {}};
    default:
      return {Source::text,
              option.type == config::OptionType::json || option.type == config::OptionType::numbers
                  ? "JSON"
                  : "TEXT",
              {}};
  }
}

std::vector<CLI::Option const*> options_of(CLI::App const& app) {
  return app.get_options(
      [](CLI::Option const* o) { return !o->get_positional() && !o->get_group().empty(); });
}

std::vector<CLI::Option const*> arguments_of(CLI::App const& app) {
  return app.get_options([](CLI::Option const* o) { return o->get_positional(); });
}

std::vector<CLI::App const*> commands_of(CLI::App const& app) {
  return app.get_subcommands([](CLI::App const*) { return true; });
}

void add_manual(CLI::App& app) {
  auto const which = std::make_shared<std::string>();
  auto* manual = app.add_subcommand(
      "manual", "Print a man page (for `man -l -`) or the bash completion script");
  manual->add_option("which", *which, "tessera-train, tessera, zero-to-fp32 or completion")
      ->required()
      ->check(one_of({"tessera-train", "tessera", "zero-to-fp32", "completion"}));
  manual->callback([which, &app] {
    std::string const& w = *which;
    fmt::print("{}", w == "tessera-train" ? training_page()
                     : w == "tessera"     ? tools_page(app)
                     : w == "completion"  ? bash_completion(app)
                                          : consolidation_page());
  });
}

}  // namespace tessera::cli
