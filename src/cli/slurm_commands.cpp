// tessera submit, tessera launch: starting jobs.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "commands.hpp"
#include "installation.hpp"
#include "tessera/core/error.hpp"
#include "tessera/topology/job_script.hpp"
#include "tessera/topology/launch_plan.hpp"
#include "tessera/topology/launcher.hpp"
#include "tessera/topology/run_program.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

/// A path as given, or the name of a shipped file.
fs::path find_shipped(std::string const& given, std::string const& folder,
                      std::string const& suffix) {
  if (given.find('/') != std::string::npos || given.ends_with(suffix)) return given;
  fs::path const file = shipped_file(folder + "/" + given + suffix);
  if (!file.empty()) return file;
  std::string known;
  if (auto const directory = shipped_file(folder); !directory.empty())
    for (auto const& entry : fs::directory_iterator(directory))
      if (entry.path().extension() == suffix)
        known += (known.empty() ? "" : ", ") + entry.path().stem().string();
  throw UsageError(
      concat("there is no '", given, "'; give the path of a file, or one of: ", known));
}

struct SubmitArguments {
  std::string script, site, after;
  std::vector<std::pair<std::string, std::string>> named;  ///< option of sbatch and its value
  std::vector<std::string> sbatch, words;
  bool dry_run = false;
};

void submit(SubmitArguments const& a) {
  topology::JobSettings settings;
  if (!a.site.empty()) {
    auto const file = find_shipped(a.site, "slurm/sites", ".conf");
    settings.site = topology::parse_site_profile(read_text(file), file.string());
  }
  for (auto const& [option, value] : a.named)
    if (!value.empty()) settings.sbatch.push_back("--" + option + "=" + value);
  if (!a.after.empty()) settings.sbatch.push_back("--dependency=afterok:" + a.after);
  settings.sbatch.insert(settings.sbatch.end(), a.sbatch.begin(), a.sbatch.end());
  settings.arguments = a.words;
  std::string const script =
      topology::fill_job_script(read_text(find_shipped(a.script, "slurm", ".sh")), settings);
  if (a.dry_run) {
    fmt::print("{}", script);
    return;
  }
  topology::exec_program({"sbatch"}, script);
}

int local_devices() {
  int devices = 0;
  while (fs::exists(fmt::format("/dev/nvidia{}", devices))) ++devices;
  return std::max(1, devices);
}

struct LaunchArguments {
  std::string hostfile, program, log_dir;
  std::vector<std::string> words;
  topology::LaunchRequest request;
  int num_nodes = -1, num_gpus = -1;
  bool dry_run = false;
};

/// `deepspeed [options] run_clm.py ARGS` becomes tessera-train ARGS; anything else is a program of
/// its own or ARGS alone.
std::vector<std::string> program_of(std::vector<std::string> words) {
  if (!words.empty() && words[0].ends_with(".py")) words.erase(words.begin());
  bool const program = !words.empty() && !words[0].starts_with("-") && !words[0].ends_with(".json");
  if (!program) words.insert(words.begin(), sibling_program("tessera-train").string());
  return words;
}

void launch(LaunchArguments& a) {
  auto& request = a.request;
  auto const facts = topology::launcher_facts(topology::process_environment());
  if (a.hostfile.empty() && !facts.slurm && fs::exists("/job/hostfile"))
    a.hostfile = "/job/hostfile";  // where DeepSpeed looks
  if (!a.hostfile.empty())
    request.hosts = topology::parse_hostfile(read_text(a.hostfile), a.hostfile);
  if (a.num_nodes != -1) request.num_nodes = a.num_nodes;
  if (a.num_gpus != -1) request.num_gpus = a.num_gpus;
  request.local_slots = local_devices();
  request.inside_slurm = facts.slurm;
  request.as_root = ::geteuid() == 0;
  request.program = program_of(a.words);
  if (!a.log_dir.empty()) request.program.insert(request.program.end(), {"--log_dir", a.log_dir});
  auto const line = topology::launch_line(request);
  fmt::print(stderr, "{}\n", topology::shell_line(line));
  if (!a.dry_run) topology::exec_program(line);
}

}  // namespace

void add_submit(CLI::App& app) {
  auto const a = std::make_shared<SubmitArguments>();
  auto* submit_app = app.add_subcommand("submit", "Fill in a batch script and hand it to sbatch");
  submit_app
      ->add_option("template", a->script,
                   "single-node, multi-node, requeue, array, debug, cpu-only, consolidate, or a "
                   "file of your own")
      ->required();
  static std::pair<char const*, char const*> const options[] = {
      {"nodes", "Number of nodes"},
      {"ntasks-per-node", "Ranks on a node"},
      {"cpus-per-task", "Cores of a rank"},
      {"gpus-per-node", "GPUs of a node"},
      {"time", "Time limit"},
      {"partition", "Partition"},
      {"account", "Account"},
      {"qos", "Quality of service"},
      {"job-name", "Name of the job"},
      {"array", "Array indices, such as 0-7%2"},
      {"signal", "Notice before the time limit, such as USR1@600"},
      {"output", "Log file, such as %x-%j.out"}};
  a->named.reserve(std::size(options));
  for (auto const& [name, meaning] : options) {
    a->named.emplace_back(name, "");
    submit_app->add_option(std::string("--") + name, a->named.back().second, meaning);
  }
  submit_app->add_option(
      "--sbatch", a->sbatch,
      "Any other option of sbatch, as --sbatch=--constraint=gpu; may be repeated");
  submit_app->add_option("--after", a->after, "Start when this job has ended well");
  submit_app->add_option("--site", a->site, "Site profile: a name from slurm/sites or a file");
  submit_app->add_flag("--dry-run", a->dry_run, "Print the script instead");
  submit_app->add_option("arguments", a->words, "What the script passes on, after --");
  submit_app->callback([a] { submit(*a); });
}

void add_launch(CLI::App& app) {
  auto const a = std::make_shared<LaunchArguments>();
  auto* launch_app = app.add_subcommand("launch",
                                        "Take the arguments of DeepSpeed's launcher; print and run "
                                        "the srun or mpirun line that does the same");
  launch_app->add_option("-H,--hostfile", a->hostfile,
                         "Lines: host slots=4 (default: /job/hostfile where there is one)");
  launch_app->add_option("-i,--include", a->request.include, "Use only these: host1:0,2@host2");
  launch_app->add_option("-e,--exclude", a->request.exclude, "Use all but these");
  launch_app->add_option("--num_nodes,--num-nodes", a->num_nodes, "The first so many hosts");
  launch_app->add_option("--num_gpus,--num-gpus", a->num_gpus, "Ranks on a node");
  launch_app->add_option("--enable_each_rank_log", a->log_dir,
                         "A log file for each rank in this directory: tessera-train's --log_dir");
  for (char const* name : {"--master_port", "--master_addr", "--node_rank", "--launcher",
                           "--launcher_args", "--ssh_port", "--bind_core_list", "--log_level"})
    launch_app->add_option_function<std::string>(
        name, [](std::string const&) {},
        "No effect: srun or mpirun starts, connects and binds the ranks");
  for (char const* name : {"--no_local_rank", "--no_python", "--no_ssh", "--no_ssh_check",
                           "--force_multi", "--save_pid", "--bind_cores_to_rank", "-q,--quiet"})
    launch_app->add_flag_function(
        name, [](std::int64_t) {},
        "No effect: srun or mpirun starts, connects and binds the ranks");
  auto const refuse = [](char const* name) {
    throw UsageError(concat(
        name,
        " starts Python, which Tessera does not; give the training's arguments to tessera-train"));
  };
  for (char const* name : {"--autotuning", "--venv_script"})
    launch_app->add_option_function<std::string>(
        name, [refuse, name](std::string const&) { refuse(name); },
        "Refused: no Python is started");
  launch_app->add_flag_function(
      "--module", [refuse](std::int64_t) { refuse("--module"); }, "Refused: no Python is started");
  launch_app->add_flag("--dry-run", a->dry_run, "Print the line only");
  launch_app->add_option("program", a->program,
                         "run_clm.py, tessera-train, another program, or -- and the arguments");
  launch_app->prefix_command();
  launch_app->callback([a, launch_app] {
    auto rest = launch_app->remaining();
    if (!rest.empty() && rest[0] == "--") rest.erase(rest.begin());
    if (!a->program.empty()) rest.insert(rest.begin(), a->program);
    a->words = rest;
    launch(*a);
  });
}

}  // namespace tessera::cli
