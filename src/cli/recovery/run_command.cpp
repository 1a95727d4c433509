#include "recovery/run_command.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>

#include "commands.hpp"
#include "installation.hpp"
#include "launch/launch_command.hpp"
#include "launch/run_program.hpp"
#include "recovery/supervisor.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/words.hpp"
#include "tessera/topology/launcher.hpp"
#include "tessera/topology/mpi_headers.hpp"

namespace tessera::cli {
namespace {

struct RunArguments {
  std::string hostfile, launcher_options;
  std::optional<int> ranks_per_node;
  std::vector<std::string> words;
  int spares = 0, max_restarts = 3;
  double hang_timeout = 300.0, exclude_stragglers = 0.0;
};

HostSlots node_with(std::string host, int ranks) {
  HostSlots node{std::move(host), {}};
  for (int slot = 0; slot < ranks; ++slot) node.slots.push_back(slot);
  return node;
}

/// The number at the start of a text such as "4(x2)"; 0: none.
int leading_number(std::string const& text) { return std::atoi(text.c_str()); }

std::vector<HostSlots> nodes_of_slurm(topology::Environment const& environment, int per_node) {
  auto const list = environment.find("SLURM_JOB_NODELIST");
  std::string const names = list == environment.end() ? "" : list->second;
  auto nodes =
      nodes_of_job(output_of({"scontrol", "show", "hostnames", names}, std::chrono::seconds(20)),
                   environment, per_node);
  TESSERA_VALIDATE(!nodes.empty(), IoError, "the nodes of the Slurm job are unknown: `scontrol ",
                   "show hostnames ", names, "` prints none");
  return nodes;
}

/// The nodes of the batch job or of the hostfile; else this machine, or parts of it as nodes.
void find_nodes(RunArguments const& a, topology::LauncherFacts const& facts, RunRequest& request) {
  int const per_node = a.ranks_per_node.value_or(0);
  auto const environment = topology::process_environment();
  auto const simulated = environment.find("TESSERA_SIMULATED_NODES");
  if (!a.hostfile.empty())
    request.nodes = parse_hostfile(read_text(a.hostfile), a.hostfile);
  else if (facts.slurm)
    request.nodes = nodes_of_slurm(environment, per_node);
  else if (!facts.node_file.empty())
    request.nodes = nodes_of_node_file(read_text(facts.node_file), per_node);
  else if (request.simulated = simulated != environment.end(); request.simulated)
    for (auto const& size : split(simulated->second, ','))
      request.nodes.push_back(node_with(fmt::format("node{}", request.nodes.size()),
                                        std::max(1, leading_number(size))));
  else
    request.nodes.push_back(node_with("localhost", std::max(1, per_node)));
  bool const named = !a.hostfile.empty() || facts.slurm || !facts.node_file.empty();
  if (named) request.launch.hosts = request.nodes;
}

void run(RunArguments const& a) {
  auto const facts = topology::launcher_facts(topology::process_environment());
  TESSERA_VALIDATE(a.max_restarts > 0 && a.hang_timeout > 0.0, UsageError,
                   "--max_restarts and --hang_timeout must be positive; they are ", a.max_restarts,
                   " and ", a.hang_timeout);
  RunRequest request;
  auto& launch = request.launch;
  if (facts.slurm) request.slurm_job = facts.job_id;
  TESSERA_VALIDATE(choose_launcher(launch, facts.slurm), IoError, "no launcher of ",
                   topology::mpi_version_of_headers(),
                   " is in PATH; `tessera doctor` lists those that it finds");
  launch.as_root = ::geteuid() == 0;
  if (auto const* user = ::getpwuid(::geteuid())) launch.user = user->pw_name;
  std::istringstream options(a.launcher_options);
  for (std::string word; options >> word;) launch.launcher_options.push_back(word);
  launch.exports = {"TESSERA_ATTEMPT"};
  find_nodes(a, facts, request);
  auto words = command_words(a.words, sibling_program("tessera-train").string());
  request.program = words.front();
  request.arguments.assign(words.begin() + 1, words.end());
  request.spares = a.spares;
  request.max_restarts = a.max_restarts;
  request.hang_timeout_seconds = a.hang_timeout;
  request.exclude_stragglers = a.exclude_stragglers;
  if (int const code = supervise(request); code != 0) std::exit(code);
}

}  // namespace

std::vector<HostSlots> nodes_of_job(std::string const& hostnames,
                                    topology::Environment const& environment, int per_node) {
  for (char const* name : {"SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})
    if (auto const found = environment.find(name); per_node == 0 && found != environment.end())
      per_node = leading_number(found->second);
  std::istringstream names(hostnames);
  std::vector<HostSlots> nodes;
  for (std::string name; names >> name;) nodes.push_back(node_with(name, std::max(1, per_node)));
  return nodes;
}

std::vector<HostSlots> nodes_of_node_file(std::string const& text, int per_node) {
  std::vector<std::string> order;
  std::map<std::string, int> lines;
  std::istringstream in(text);
  for (std::string host; in >> host;)
    if (++lines[host] == 1) order.push_back(host);
  TESSERA_VALIDATE(!order.empty(), IoError, "PBS_NODEFILE lists no nodes");
  std::vector<HostSlots> nodes;
  for (auto const& host : order)
    nodes.push_back(node_with(host, per_node > 0 ? per_node : lines[host]));
  return nodes;
}

void add_run(Command& app) {
  auto const a = std::make_shared<RunArguments>();
  auto& command = app.add_command(
      "run", "Start a training inside a batch job or on this machine, and again after failures");
  command.add("--spares", a->spares, "nodes of the job that train only in place of others")
      .at_least(0);
  command
      .add("--max_restarts", a->max_restarts,
           "failures at the same step for the same reason that end the run")
      .at_least(1);
  command.add("--hang_timeout", a->hang_timeout,
              "seconds without a step or a batch of an evaluation that count as a hang; a start or "
              "a save that training waits for may take ten times as long");
  command
      .add("--exclude_stragglers FACTOR", a->exclude_stragglers,
           "a node this many times slower than the others is left out of the next start; 0: none")
      .at_least(0);
  command.add("--ranks_per_node,--num_gpus", a->ranks_per_node,
              "ranks per node (default: tasks per node of the job; 1 on one machine)");
  command.add("-H,--hostfile FILE", a->hostfile,
              "file with lines: host slots=4 (default: the nodes of the job)");
  command.add("--launcher_options", a->launcher_options,
              "further options of srun or mpirun, separated by blanks");
  command
      .add_rest("program PROGRAM", a->words,
                "tessera-train and its arguments; or -- and the arguments", Command::Rest::program)
      .required();
  command.run([a] { run(*a); });
}

}  // namespace tessera::cli
