#include "commands.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>

#include "doctor/diagnosis.hpp"
#include "doctor/node_report.hpp"
#include "installation.hpp"
#include "launch/run_program.hpp"
#include "recovery/run_history.hpp"
#include "recovery/run_watch.hpp"
#include "slurm/job_record.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/limits.hpp"
#include "tessera/topology/mpi_headers.hpp"
#include "tessera/train/report/run_lock.hpp"
#include "tessera/train/report/version.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

using namespace std::chrono_literals;
struct DoctorArguments {
  std::string why, log, directory = ".";
  bool strict = false, gpus = false;
};

void explain(DoctorArguments const& a) {
  auto const status = ConfigTree::read(fs::path(a.why) / "status.json");
  std::string const job = status.get_string("SLURM_JOB_ID", "");
  TESSERA_VALIDATE(a.log.empty() || fs::exists(a.log), IoError, "no log file ", a.log,
                   "; give the job's log with --log");
  auto const record = read_job_record(job, a.log);
  auto const owner = has_ended(status) ? std::nullopt : train::find_owner(a.why);
  auto const diagnosis = diagnose(status, record, owner && owner->alive ? owner->description : "");
  fmt::print("{}\n", diagnosis.what);
  if (!record.state.empty()) fmt::print("Slurm state of job {}: {}\n", job, record.state);
  if (!record.evidence.empty()) fmt::print("{}: {}\n", record.log, record.evidence);
  if (!diagnosis.advice.empty()) fmt::print("What to do:\n");
  for (auto const& advice : diagnosis.advice) fmt::print("  - {}\n", advice);
  if (auto const file = fs::path(a.why) / history_file; fs::exists(file)) {
    auto const history = ConfigTree::read(file);
    fmt::print("failures that `tessera run` has met: {}\n", failures_text(history));
    for (auto const& line : history_lines(history, 20)) fmt::print("  {}\n", line);
    fmt::print("goodput: {}\n", goodput_text(history));
  }
}

NodeSection memory_section() {
  NodeSection section{"memory", {}, {}};
  auto const available = memory::available_memory();
  section.add("for this process",
              fmt::format("{} ({})", human_bytes(static_cast<std::int64_t>(available.bytes)),
                          available.limited_by));
  return section;
}

/// The value of a line "  name   value" of --version; empty: none.
std::string value_in(std::string const& versions, std::string const& name) {
  std::istringstream lines(versions);
  for (std::string line, key; std::getline(lines, line);) {
    std::istringstream words(line);
    if (words >> key && key == name)
      return std::string(std::istreambuf_iterator<char>(words >> std::ws), {});
  }
  return "";
}

std::string what_happened(ProgramResult const& result) {
  std::string const how =
      result.code < 0 ? "no exit within 30 s" : concat("exit code ", result.code);
  std::string const said = result.output.substr(0, result.output.find_last_not_of('\n') + 1);
  return concat(how, said.empty() ? "" : "; output: " + said.substr(0, 600));
}

/// The number of ranks in "MPI_THREAD_SERIALIZED, rank 0 of 2, host".
int ranks_in(std::string const& probe) {
  std::size_t const after = probe.find(" of ");
  return after == std::string::npos ? 1 : std::atoi(probe.c_str() + after + 4);
}

/// This program links no MPI and no BLAS: tessera-train names its own, and starts MPI, in child
/// processes. On a login node it may not start, hang or end.
NodeSection library_section(topology::LauncherFacts const& facts, std::string const& trainer,
                            ProgramResult const& versions) {
  NodeSection section{"libraries", {}, {}};
  auto const built = train::build_versions();
  for (char const* name : {"tessera", "commit", "build", "hdf5", "kokkos"})
    section.add(name, built.at(name).as_string());
  if (versions.code != 0) {
    section.problems.push_back(concat("tessera-train does not start on this node (",
                                      what_happened(versions),
                                      "); to train here, load the modules of the build"));
    return section;
  }
  for (char const* name : {"mpi", "blas"}) section.add(name, value_in(versions.output, name));
  auto const probe = run_program({trainer, "--probe_mpi"}, 30s, Capture::both);
  if (probe.code == 0) {
    auto const started = value_in(probe.output, "mpi");
    section.add("MPI starts", started);
    auto const why =
        topology::disagreement(facts, ranks_in(started), value_in(versions.output, "mpi"));
    if (!why.empty()) section.problems.push_back(why);
  } else
    section.problems.push_back(concat("MPI does not start on this node (", what_happened(probe),
                                      "); a login node may forbid it"));
  if (char const* locking = std::getenv("HDF5_USE_FILE_LOCKING"))
    section.add("HDF5_USE_FILE_LOCKING", locking);
  return section;
}

int print(NodeSection const& section) {
  fmt::print("{}\n", section.title);
  for (auto const& [name, value] : section.facts) fmt::print("  {:<22} {}\n", name, value);
  for (auto const& problem : section.problems) fmt::print("  ! {}\n", problem);
  return static_cast<int>(section.problems.size());
}

void examine(DoctorArguments const& a) {
  auto const environment = topology::process_environment();
  int problems = 0;
  problems += print(processor_section());
  problems += print(memory_section());
  auto const facts = topology::launcher_facts(environment);
  std::string const trainer = sibling_program("tessera-train").string();
  auto const versions = run_program({trainer, "--version"}, 30s, Capture::both);
  problems += print(library_section(facts, trainer, versions));
  problems +=
      print(launcher_section(facts, launchers_in_path(), topology::mpi_version_of_headers()));
  problems += print(file_system_section(a.directory));
  problems += print(limits_section());
  problems += print(network_section(environment, network_devices()));
  problems += print(slurm_section(
      environment, output_of({"srun", "--mpi=list"}, 10s),
      versions.code == 0 ? value_in(versions.output, "mpi") : topology::mpi_version_of_headers()));
  problems += print(gpu_section());
  fmt::print("{}\n", problems == 0 ? std::string("no problems found")
                                   : fmt::format("{} {}, marked with ! above", problems,
                                                 plural(problems, "problem")));
  std::cout.flush();
  TESSERA_VALIDATE(problems == 0 || !a.strict, ConfigError, problems, " ",
                   plural(problems, "problem"),
                   " on this node (--strict); see the lines marked with !");
}

}  // namespace

void add_doctor(Command& app) {
  auto const a = std::make_shared<DoctorArguments>();
  auto& doctor = app.add_command(
      "doctor",
      "Check this node for problems that affect runs; with --why, explain why a run ended");
  doctor.add("--why DIR", a->why,
             "output directory of a run that ended: print why, and what to change");
  doctor.add("--log FILE", a->log,
             "with --why: the job's log file (default: the path that Slurm reports)");
  doctor.add("--dir DIR", a->directory, "output directory of runs, whose file system is checked");
  doctor.add("--gpus", a->gpus,
             "print the GPUs of this node, their links to each other and to the network, "
             "versions, and NCCL settings that cost speed");
  doctor.add("--strict", a->strict, "exit with 78 if a problem is found");
  doctor.run([a] {
    if (!a->why.empty())
      explain(*a);
    else if (a->gpus)
      print_gpus();
    else
      examine(*a);
  });
}

}  // namespace tessera::cli
