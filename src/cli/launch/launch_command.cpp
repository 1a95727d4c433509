#include "launch/launch_command.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <memory>

#include "installation.hpp"
#include "launch/launch_plan.hpp"
#include "launch/run_program.hpp"
#include "tessera/config/option_table.hpp"
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
  std::string num_nodes, num_gpus;
  std::vector<std::string> ignored;  ///< options that were given and have no effect
  std::string autotuning;            ///< "tune", "run"; empty: not given
  bool dry_run = false;
};

constexpr char const* why_no_effect = "srun or mpirun starts, connects and binds the ranks";

bool is_run_clm(std::string const& word) { return fs::path(word).filename() == "run_clm.py"; }

/// "--master_port" of "--master_port,--master-port".
std::string first_name(std::string const& names) { return names.substr(0, names.find(',')); }

void launch(LaunchArguments& a) {
  auto& request = a.request;
  auto const facts = topology::launcher_facts(topology::process_environment());
  if (a.hostfile.empty() && !facts.slurm && fs::exists("/job/hostfile"))
    a.hostfile = "/job/hostfile";  // DeepSpeed's default
  if (!a.hostfile.empty()) request.hosts = parse_hostfile(read_text(a.hostfile), a.hostfile);
  request.num_nodes = count_of(a.num_nodes, "--num_nodes");
  request.num_gpus = count_of(a.num_gpus, "--num_gpus");
  request.local_slots = std::max(1, topology::count_nvidia_devices());
  request.inside_slurm = facts.slurm;
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
void add_options_without_effect(CLI::App& app, LaunchArguments& a) {
  std::string const meaning = std::string("No effect: ") + why_no_effect;
  for (char const* name :
       {"--master_port,--master-port", "--master_addr,--master-addr", "--node_rank,--node-rank",
        "--launcher", "--launcher_args", "--ssh_port", "--bind_core_list", "--log_level",
        "--rdzv_backend,--rdzv-backend", "--rdzv_endpoint,--rdzv-endpoint", "--rdzv_id,--rdzv-id",
        "--rdzv_conf,--rdzv-conf", "--max_restarts,--max-restarts",
        "--monitor_interval,--monitor-interval", "--start_method,--start-method", "--role",
        "--local_addr,--local-addr"})
    app.add_option_function<std::string>(
        name, [&a, name](std::string const&) { a.ignored.push_back(first_name(name)); }, meaning);
  for (char const* name :
       {"--no_local_rank", "--no_python,--no-python", "--no_ssh", "--no_ssh_check", "--force_multi",
        "--save_pid", "--bind_cores_to_rank", "--standalone", "-q,--quiet"})
    app.add_flag_function(
        name, [&a, name](std::int64_t) { a.ignored.push_back(first_name(name)); }, meaning);
}

/// Options of DeepSpeed's launcher that need Python.
void add_unsupported_options(CLI::App& app) {
  auto const refuse = [](char const* name) {
    throw UsageError(concat(name,
                            " needs Python, which Tessera does not start; pass the training "
                            "arguments to tessera-train"));
  };
  app.add_option_function<std::string>(
      "--venv_script", [refuse](std::string const&) { refuse("--venv_script"); },
      "Not supported: Tessera starts no Python");
  app.add_flag_function(
      "-m,--module", [refuse](std::int64_t) { refuse("--module"); },
      "Not supported: Tessera starts no Python");
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

std::vector<std::string> separate_program(CLI::App const& launch, std::vector<std::string> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") return words;
    if (!words[i].starts_with("-")) {
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(i), "--");
      return words;
    }
    bool const joined = words[i].size() > 2 && words[i][1] != '-';  // -Hfile
    std::string const name =
        joined ? words[i].substr(0, 2) : words[i].substr(0, words[i].find('='));
    auto const* option = launch.get_option_no_throw(name);
    TESSERA_VALIDATE(option, UsageError, "launch has no option ", name,
                     "; options of the training follow run_clm.py or --");
    bool const has_value = joined || name != words[i];
    if (!has_value && option->get_items_expected_min() > 0) ++i;
  }
  return words;
}

std::vector<std::string> launch_words(CLI::App const& app, std::vector<std::string> words) {
  if (words.empty() || words[0] != "launch") return words;
  auto const found =
      app.get_subcommands([](CLI::App const* sub) { return sub->get_name() == "launch"; });
  if (found.empty()) return words;
  auto separated = separate_program(*found.front(), {words.begin() + 1, words.end()});
  separated.insert(separated.begin(), "launch");
  return separated;
}

namespace {

bool is_option(std::string const& word) {
  return word.size() > 1 && word[0] == '-' &&
         std::isalpha(static_cast<unsigned char>(word[word.find_first_not_of('-') % word.size()]));
}

bool is_training_option(std::string const& name) {
  std::string const bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  bool const negated = bare.starts_with("no_") || bare.starts_with("no-");
  return config::argument_table().find(bare) ||
         (negated && config::argument_table().find(bare.substr(3)));
}

/// The command that the first words name; @p words loses them.
CLI::App const* take_command(CLI::App const& app, std::vector<std::string>& words) {
  CLI::App const* command = &app;
  while (!words.empty()) {
    auto const found = command->get_subcommands(
        [&](CLI::App const* sub) { return sub->get_name() == words.front(); });
    if (found.empty()) break;
    command = found.front();
    words.erase(words.begin());
  }
  return command;
}

}  // namespace

std::vector<std::string> with_training_options(CLI::App const& app,
                                               std::vector<std::string> words) {
  auto rest = words;
  auto const* command = take_command(app, rest);
  if (command == &app || !command->get_option_no_throw("options")) return words;
  std::vector<std::string> own{words.begin(), words.end() - std::ssize(rest)}, training;
  bool in_training = false;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] == "--") {
      training.insert(training.end(), rest.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                      rest.end());
      break;
    }
    if (!is_option(rest[i])) {
      (in_training ? training : own).push_back(rest[i]);
      continue;
    }
    std::string const name = rest[i].substr(0, rest[i].find('='));
    auto const* option = command->get_option_no_throw(name);
    in_training = !option && is_training_option(name);
    (in_training ? training : own).push_back(rest[i]);
    bool const has_value = option && name == rest[i] && option->get_items_expected_min() > 0;
    if (has_value && i + 1 < rest.size()) own.push_back(rest[++i]);
  }
  if (training.empty()) return words;
  own.emplace_back("--");
  own.insert(own.end(), training.begin(), training.end());
  return own;
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
  launch_app->add_option("--num_nodes,--num-nodes,--nnodes", a->num_nodes,
                         "Number of hosts to use, from the first");
  launch_app->add_option(
      "--num_gpus,--num-gpus,--num_accelerators,--num-accelerators,--nproc_per_node,"
      "--nproc-per-node",
      a->num_gpus, "Ranks per node");
  launch_app->add_option("--enable_each_rank_log", a->log_dir,
                         "Directory for one log file per rank; becomes --log_dir of tessera-train");
  launch_app
      ->add_option("--autotuning", a->autotuning,
                   "run: --auto_tune of tessera-train; tune: the search without the training")
      ->check(CLI::IsMember({"tune", "run"}));
  add_options_without_effect(*launch_app, *a);
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
