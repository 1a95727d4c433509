#include "launch/launch_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "installation.hpp"
#include "launch/launch_plan.hpp"
#include "launch/run_program.hpp"
#include "launch/shell_words.hpp"
#include "tessera/core/error.hpp"
#include "tessera/topology/gpu_inventory.hpp"
#include "tessera/topology/launcher.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

struct LaunchArguments {
  std::string hostfile, program, log_dir;
  std::vector<std::string> words;
  LaunchRequest request;
  int num_nodes = -1, num_gpus = -1;
  bool dry_run = false;
};

void launch(LaunchArguments& a) {
  auto& request = a.request;
  auto const facts = topology::launcher_facts(topology::process_environment());
  if (a.hostfile.empty() && !facts.slurm && fs::exists("/job/hostfile"))
    a.hostfile = "/job/hostfile";  // DeepSpeed's default
  if (!a.hostfile.empty()) request.hosts = parse_hostfile(read_text(a.hostfile), a.hostfile);
  if (a.num_nodes != -1) request.num_nodes = a.num_nodes;
  if (a.num_gpus != -1) request.num_gpus = a.num_gpus;
  request.local_slots = std::max(1, topology::count_nvidia_devices());
  request.inside_slurm = facts.slurm;
  request.as_root = ::geteuid() == 0;
  request.program = command_words(a.words, sibling_program("tessera-train").string());
  if (!a.log_dir.empty()) request.program.insert(request.program.end(), {"--log_dir", a.log_dir});
  auto const line = launch_line(request);
  fmt::print(stderr, "{}\n", shell_line(line));
  if (!a.dry_run) exec_program(line);
}

/// Options of DeepSpeed's launcher that srun or mpirun makes unnecessary.
void add_options_without_effect(CLI::App& app) {
  for (char const* name : {"--master_port", "--master_addr", "--node_rank", "--launcher",
                           "--launcher_args", "--ssh_port", "--bind_core_list", "--log_level"})
    app.add_option_function<std::string>(
        name, [](std::string const&) {},
        "No effect: srun or mpirun starts, connects and binds the ranks");
  for (char const* name : {"--no_local_rank", "--no_python", "--no_ssh", "--no_ssh_check",
                           "--force_multi", "--save_pid", "--bind_cores_to_rank", "-q,--quiet"})
    app.add_flag_function(
        name, [](std::int64_t) {},
        "No effect: srun or mpirun starts, connects and binds the ranks");
}

/// Options of DeepSpeed's launcher that need Python.
void add_unsupported_options(CLI::App& app) {
  auto const refuse = [](char const* name) {
    throw UsageError(concat(name,
                            " needs Python, which Tessera does not start; pass the training "
                            "arguments to tessera-train"));
  };
  for (char const* name : {"--autotuning", "--venv_script"})
    app.add_option_function<std::string>(
        name, [refuse, name](std::string const&) { refuse(name); },
        "Not supported: Tessera starts no Python");
  app.add_flag_function(
      "--module", [refuse](std::int64_t) { refuse("--module"); },
      "Not supported: Tessera starts no Python");
}

}  // namespace

std::vector<std::string> command_words(std::vector<std::string> words, std::string const& trainer) {
  if (!words.empty() && words[0].ends_with(".py")) words.erase(words.begin());
  bool const program = !words.empty() && !words[0].starts_with("-") && !words[0].ends_with(".json");
  if (!program) words.insert(words.begin(), trainer);
  return words;
}

void add_launch(CLI::App& app) {
  auto const a = std::make_shared<LaunchArguments>();
  auto* launch_app = app.add_subcommand("launch",
                                        "Translate the arguments of DeepSpeed's launcher to an "
                                        "srun or mpirun command; print and run it");
  launch_app->add_option("-H,--hostfile", a->hostfile,
                         "File with lines: host slots=4 (default: /job/hostfile if it exists)");
  launch_app->add_option("-i,--include", a->request.include,
                         "Use only these hosts and slots: host1:0,2@host2");
  launch_app->add_option("-e,--exclude", a->request.exclude,
                         "Use all hosts and slots except these");
  launch_app->add_option("--num_nodes,--num-nodes", a->num_nodes,
                         "Number of hosts to use, from the first");
  launch_app->add_option("--num_gpus,--num-gpus", a->num_gpus, "Ranks per node");
  launch_app->add_option("--enable_each_rank_log", a->log_dir,
                         "Directory for one log file per rank; becomes --log_dir of tessera-train");
  add_options_without_effect(*launch_app);
  add_unsupported_options(*launch_app);
  launch_app->add_flag("--dry-run", a->dry_run, "Print the command and do not run it");
  launch_app->add_option("program", a->program,
                         "run_clm.py, tessera-train or another program; or -- and the arguments");
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
