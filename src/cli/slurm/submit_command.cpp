#include "commands.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <regex>
#include <set>

#include "installation.hpp"
#include "launch/run_program.hpp"
#include "slurm/job_script.hpp"
#include "slurm/pbs_script.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

/// @p given as a path, or the installed file of that name in the first of @p folders that has it.
fs::path find_shipped(std::string const& given, std::vector<std::string> const& folders,
                      std::string const& suffix) {
  if (given.find('/') != std::string::npos || given.ends_with(suffix)) return given;
  std::set<std::string> names;
  for (auto const& folder : folders) {
    fs::path const file = shipped_file(folder + "/" + given + suffix);
    if (!file.empty()) return file;
    auto const directory = shipped_file(folder);
    TESSERA_VALIDATE(!directory.empty(), IoError, "share/tessera/", folder,
                     " is missing; the installation is incomplete, install Tessera again");
    for (auto const& entry : fs::directory_iterator(directory))
      if (entry.path().extension() == suffix) names.insert(entry.path().stem().string());
  }
  throw UsageError(
      fmt::format("no file named '{}' is installed; give the path of a file, or one of: {}", given,
                  fmt::join(names, ", ")));
}

struct SubmitArguments {
  std::string script, site, after;
  std::vector<std::pair<std::string, std::optional<std::string>>> named;  ///< options of sbatch
  std::vector<std::string> sbatch, words;
  bool dry_run = false, unchecked = false, pbs = false;
};

/// The arguments of tessera-train, where the script passes them on: all of "$@", or of an array a
/// run file for each task.
void check_arguments(std::string const& script, std::vector<std::string> const& words, int ranks) {
  bool const has_spares = script.find("\ntessera run ") != std::string::npos;
  if (script.find("tessera-train \"$@\"") != std::string::npos)
    return check_training_arguments(words, has_spares ? 0 : ranks);
  if (script.find("tessera-train \"$run\"") == std::string::npos) return;
  TESSERA_VALIDATE(!words.empty() && fs::is_directory(words[0]), UsageError,
                   "an array needs a directory with run files (*.json)",
                   words.empty() ? "" : concat("; '", words[0], "' is none"));
  int files = 0;
  for (auto const& entry : fs::directory_iterator(words[0])) {
    if (entry.path().extension() != ".json") continue;
    auto of_task = words;
    of_task[0] = entry.path().string();
    check_training_arguments(of_task, ranks);
    ++files;
  }
  TESSERA_VALIDATE(files > 0, UsageError, words[0], " has no run files (*.json)");
}

void submit(SubmitArguments const& a) {
  JobSettings settings;
  if (!a.site.empty()) {
    auto const file = find_shipped(a.site, {"slurm/sites", "pbs/sites"}, ".conf");
    settings.site = parse_site_profile(read_text(file), file.string());
  }
  for (auto const& [option, value] : a.named)
    if (value) settings.sbatch.push_back("--" + option + "=" + *value);
  TESSERA_VALIDATE(std::regex_match(a.after, std::regex("|[0-9_]+(\\[\\])?(\\.[A-Za-z0-9.-]+)?")),
                   UsageError, "--after is '", a.after, "'; it must be a job id");
  if (!a.after.empty()) settings.sbatch.push_back("--dependency=afterok:" + a.after);
  settings.sbatch.insert(settings.sbatch.end(), a.sbatch.begin(), a.sbatch.end());
  settings.arguments = a.words;
  bool const pbs = a.pbs || !settings.site.qsub.empty();
  auto const given = read_text(find_shipped(a.script, {pbs ? "pbs" : "slurm"}, ".sh"));
  auto const script = pbs ? fill_pbs_script(given, settings) : fill_job_script(given, settings);
  if (a.dry_run) fmt::print("{}", script);
  if (!a.unchecked)
    check_arguments(script, a.words, pbs ? ranks_of_pbs_script(script) : ranks_of_script(script));
  if (!a.dry_run) exec_program({pbs ? "qsub" : "sbatch"}, script);
}

}  // namespace

void add_submit(Command& app) {
  auto const a = std::make_shared<SubmitArguments>();
  auto& submit_app =
      app.add_command("submit", "Fill in a batch script and pass it to sbatch or qsub");
  submit_app
      .add("template TEMPLATE", a->script,
           "single-node, multi-node, requeue, recover, array, debug, cpu-only, consolidate, or "
           "the path of a file")
      .required();
  static std::pair<char const*, char const*> const options[] = {
      {"nodes", "number of nodes"},
      {"ntasks-per-node", "ranks per node"},
      {"cpus-per-task", "cores per rank"},
      {"gpus-per-node", "GPUs per node"},
      {"time", "time limit"},
      {"partition", "partition"},
      {"account", "account"},
      {"qos", "quality of service"},
      {"job-name", "job name"},
      {"array", "array indices, such as 0-7%2"},
      {"signal", "signal before the time limit, such as USR1@600"},
      {"output", "log file, such as %x-%j.out"}};
  a->named.reserve(std::size(options));
  for (auto const& [name, meaning] : options) {
    a->named.emplace_back(name, std::nullopt);
    submit_app.add(std::string("--") + name, a->named.back().second, meaning);
  }
  submit_app.add("--sbatch", a->sbatch,
                 "any other option of sbatch, such as --sbatch=--constraint=gpu; can be repeated");
  submit_app.add("--after JOB", a->after, "start after this job has succeeded");
  submit_app.add("--site SITE", a->site,
                 "site profile: a name from slurm/sites or pbs/sites, or the path of a file");
  submit_app.add("--pbs", a->pbs, "a job for PBS; so is one with a profile from pbs/sites");
  submit_app.add("--dry-run", a->dry_run, "print the script and do not submit it");
  submit_app.add("--no-check", a->unchecked,
                 "do not check the training arguments first, as for files that exist on the "
                 "compute nodes only");
  submit_app.add_rest("arguments ARGUMENTS", a->words, "arguments of the script, after --",
                      Command::Rest::own);
  submit_app.run([a] { submit(*a); });
}

}  // namespace tessera::cli
