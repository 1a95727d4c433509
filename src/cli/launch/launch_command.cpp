#include "launch/launch_command.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>

#include "installation.hpp"
#include "launch/launch_plan.hpp"
#include "launch/mpi_launcher.hpp"
#include "launch/run_program.hpp"
#include "tessera/core/error.hpp"
#include "tessera/topology/gpu_inventory.hpp"
#include "tessera/topology/launcher.hpp"
#include "tessera/topology/mpi_headers.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

struct LaunchArguments {
  std::string hostfile, log_dir;
  std::vector<std::string> words;
  LaunchRequest request;
  std::string num_nodes, num_gpus;
  std::vector<std::string> ignored;  ///< options that were given and have no effect
  std::string autotuning;            ///< "tune", "run"; empty: not given
  bool dry_run = false;
};

constexpr char const* why_no_effect = "srun or mpirun starts, connects and binds the ranks";

bool is_run_clm(std::string const& word) { return fs::path(word).filename() == "run_clm.py"; }

void launch(LaunchArguments& a) {
  auto& request = a.request;
  auto const facts = topology::launcher_facts(topology::process_environment());
  if (a.hostfile.empty() && !facts.slurm && fs::exists("/job/hostfile"))
    a.hostfile = "/job/hostfile";  // DeepSpeed's default
  if (!a.hostfile.empty()) request.hosts = parse_hostfile(read_text(a.hostfile), a.hostfile);
  request.num_nodes = count_of(a.num_nodes, "--num_nodes");
  request.num_gpus = count_of(a.num_gpus, "--num_gpus");
  request.local_slots = std::max(1, topology::count_nvidia_devices());
  choose_launcher(request, facts.slurm);
  request.as_root = ::geteuid() == 0;
  if (auto const* user = ::getpwuid(::geteuid())) request.user = user->pw_name;
  request.program = command_words(a.words, sibling_program("tessera-train").string());
  if (!a.log_dir.empty()) request.program.insert(request.program.end(), {"--log_dir", a.log_dir});
  if (!a.autotuning.empty()) request.program.emplace_back("--auto_tune");
  if (a.autotuning == "tune")
    request.program.insert(request.program.end(), {"--do_train", "false"});
  auto const line = launch_line(request);
  for (auto const& name : a.ignored)
    fmt::print(stderr, "note: {} has no effect: {}\n", name, why_no_effect);
  if (!a.words.empty() && is_run_clm(a.words[0]))
    fmt::print(stderr, "note: tessera-train takes the arguments of {}\n", a.words[0]);
  fmt::print(stderr, "{}\n", shell_line(line));
  if (!a.dry_run) exec_program(line);
}

/// Options of DeepSpeed's launcher and of torchrun that srun or mpirun makes unnecessary.
void add_options_without_effect(Command& app, LaunchArguments& a) {
  auto const add = [&](config::OptionType type, std::string const& name) {
    app.add({type, name, {}, why_no_effect},
            [&a, name](ConfigTree const&) { a.ignored.push_back(name); })
        .hint(why_no_effect);
  };
  for (char const* name :
       {"--master_port", "--master_addr", "--node_rank", "--launcher", "--launcher_args",
        "--ssh_port", "--bind_core_list", "--log_level", "--rdzv_backend", "--rdzv_endpoint",
        "--rdzv_id", "--rdzv_conf", "--max_restarts", "--monitor_interval", "--start_method",
        "--role", "--local_addr"})
    add(config::OptionType::string, name);
  for (char const* name : {"--no_local_rank", "--no_python", "--no_ssh", "--no_ssh_check",
                           "--force_multi", "--save_pid", "--bind_cores_to_rank", "--standalone"})
    add(config::OptionType::boolean, name);
  app.add({config::OptionType::boolean, "-q,--quiet", {}, why_no_effect},
          [&a](ConfigTree const&) { a.ignored.emplace_back("--quiet"); })
      .hint(why_no_effect);
}

/// Options of DeepSpeed's launcher that need Python.
void add_unsupported_options(Command& app) {
  char const* const why =
      "it needs Python, which Tessera does not start; pass the training arguments to tessera-train";
  app.add({config::OptionType::string, "--venv_script", {}, "not supported"}, {}).refuse(why);
  app.add({config::OptionType::boolean, "-m,--module", false, "not supported"}, {}).refuse(why);
}

}  // namespace

std::vector<std::string> command_words(std::vector<std::string> words, std::string const& trainer) {
  if (!words.empty() && words[0].ends_with(".py")) {
    TESSERA_VALIDATE(is_run_clm(words[0]), UsageError, words[0],
                     " is a Python program, which Tessera does not start; tessera-train replaces "
                     "run_clm.py: write run_clm.py or tessera-train, and its arguments");
    words.erase(words.begin());
  }
  bool const program = !words.empty() && !words[0].starts_with("-") && !words[0].ends_with(".json");
  if (!program) {
    words.insert(words.begin(), trainer);
    return words;
  }
  // a plain name is searched in PATH on the nodes of the job
  TESSERA_VALIDATE(words[0].find('/') == std::string::npos || std::filesystem::exists(words[0]),
                   IoError, "no program ", words[0],
                   "; give tessera-train, run_clm.py or a path that exists");
  return words;
}

bool choose_launcher(LaunchRequest& request, bool inside_slurm) {
  request.launcher = topology::Launcher::srun;
  if (inside_slurm) return true;
  auto const own = own_launcher();
  auto const family = topology::mpi_family(topology::mpi_version_of_headers());
  request.launcher = own                                    ? own->kind()
                     : family == topology::MpiFamily::mpich ? topology::Launcher::hydra
                                                            : topology::Launcher::mpirun;
  if (own) request.mpirun = own->program;
  return own.has_value();
}

std::optional<int> count_of(std::string const& text, std::string const& option) {
  if (text.empty() || text == "-1" || text == "auto" || text == "gpu" || text == "cpu") return {};
  int number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  TESSERA_VALIDATE(error == std::errc() && end == text.data() + text.size() && number > 0,
                   UsageError, option, " is '", text,
                   "'; it must be a positive number (the number of ranks is fixed, so that a range "
                   "of torchrun cannot be used)");
  return number;
}

void add_launch(Command& app) {
  auto const a = std::make_shared<LaunchArguments>();
  auto& launch_app = app.add_command("launch",
                                     "Translate the arguments of DeepSpeed's launcher to an "
                                     "srun or mpirun command; print and run it");
  launch_app.add("-H,--hostfile FILE", a->hostfile,
                 "file with lines: host slots=4 (default: /job/hostfile if it exists)");
  launch_app.add("-i,--include", a->request.include,
                 "use only these hosts and slots: host1:0,2@host2");
  launch_app.add("-e,--exclude", a->request.exclude, "use all hosts and slots except these");
  launch_app.add("--num_nodes,--nnodes", a->num_nodes, "number of hosts to use, from the first");
  launch_app.add(
      "--num_gpus,--num_accelerators,--nproc_per_node,"
      "--nproc-per-node",
      a->num_gpus, "Ranks per node");
  launch_app.add("--enable_each_rank_log DIR", a->log_dir,
                 "directory for one log file per rank; becomes --log_dir of tessera-train");
  launch_app
      .add("--autotuning", a->autotuning,
           "run: --auto_tune of tessera-train; tune: the search without the training")
      .one_of({"tune", "run"});
  add_options_without_effect(launch_app, *a);
  add_unsupported_options(launch_app);
  launch_app.add("--dry-run", a->dry_run, "print the command and do not run it");
  launch_app.add_rest(
      "program PROGRAM", a->words,
      "run_clm.py, tessera-train or another program and its arguments; or -- and the "
      "arguments of tessera-train",
      Command::Rest::program);
  launch_app.run([a] { launch(*a); });
}

}  // namespace tessera::cli
