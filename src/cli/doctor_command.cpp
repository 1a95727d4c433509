// tessera doctor: what this node offers a run, or why a run ended.
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <memory>

#include "commands.hpp"
#include "doctor.hpp"
#include "installation.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/limits.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/topology/run_program.hpp"
#include "tessera/train/diagnosis.hpp"
#include "tessera/train/version.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

using namespace std::chrono_literals;
using topology::NodeSection;

struct DoctorArguments {
  std::string why, log, directory = ".";
  bool strict = false, gpus = false, probe_mpi = false;
};

/// The end of a file, where a job's last words are.
std::string tail_of(fs::path const& file, std::streamoff bytes) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in || fs::is_directory(file)) return "";
  auto const size = static_cast<std::streamoff>(in.tellg());
  in.seekg(std::max<std::streamoff>(0, size - bytes));
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

/// Accounting knows jobs that have long ended, the controller the recent ones and their log files;
/// either may be absent.
train::JobRecord record_of(std::string const& job, std::string const& log) {
  train::JobRecord record;
  std::string from_controller;
  if (!job.empty()) {
    record.state = train::job_state_in(
        topology::output_of({"sacct", "-X", "-n", "-P", "-j", job, "-o", "State"}, 10s));
    from_controller = topology::output_of({"scontrol", "show", "job", "-o", job}, 10s);
    if (record.state.empty()) record.state = train::job_state_in(from_controller);
  }
  record.log = log.empty() ? train::log_file_in(from_controller) : log;
  if (!record.log.empty()) record.evidence = train::evidence_in(tail_of(record.log, 1 << 20));
  return record;
}

void explain(DoctorArguments const& a) {
  auto const status = ConfigTree::read(fs::path(a.why) / "status.json");
  std::string const job = status.get_string("SLURM_JOB_ID", "");
  TESSERA_VALIDATE(a.log.empty() || fs::exists(a.log), IoError, "there is no log ", a.log);
  auto const record = record_of(job, a.log);
  auto const diagnosis = train::diagnose(status, record);
  fmt::print("{}\n", diagnosis.what);
  if (!record.state.empty()) fmt::print("Slurm's word on job {}: {}\n", job, record.state);
  if (!record.evidence.empty()) fmt::print("{} says: {}\n", record.log, record.evidence);
  if (!diagnosis.advice.empty()) fmt::print("What to do:\n");
  for (auto const& advice : diagnosis.advice) fmt::print("  - {}\n", advice);
}

NodeSection memory_section() {
  NodeSection section{"memory", {}, {}};
  auto const available = memory::available_memory();
  section.add("for this process",
              fmt::format("{} ({})", human_bytes(static_cast<std::int64_t>(available.bytes)),
                          available.limited_by));
  return section;
}

/// MPI is started in a process of its own: on a login node it may hang or end its process.
NodeSection library_section() {
  NodeSection section{"libraries", {}, {}};
  auto const versions = train::versions_tree();
  for (char const* name : {"tessera", "commit", "build", "mpi", "hdf5", "kokkos", "blas"})
    section.add(name, versions.at(name).as_string());
  auto const probe =
      topology::run_program({fs::read_symlink("/proc/self/exe").string(), "doctor", "--probe-mpi"},
                            30s, topology::Capture::both);
  std::string const text = probe.output.substr(0, probe.output.find_last_not_of('\n') + 1);
  if (probe.code == 0)
    section.add("MPI starts", text.substr(text.rfind('\n') + 1));
  else
    section.problems.push_back(concat(
        "MPI does not start here (",
        probe.code < 0 ? std::string("no end within 30 s") : concat("exit code ", probe.code),
        "); on a login node that may be intended. It said: ", text.substr(0, 600)));
  if (char const* locking = std::getenv("HDF5_USE_FILE_LOCKING"))
    section.add("HDF5_USE_FILE_LOCKING", locking);
  return section;
}

void probe_mpi() {
  int argc = 0;
  char** argv = nullptr;
  topology::MpiSession const session(argc, argv);
  fmt::print("{} {} of {}, {}\n", topology::MpiSession::thread_level(), session.info().rank,
             session.info().world_size, session.info().host);
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
  problems += print(topology::processor_section());
  problems += print(memory_section());
  problems += print(library_section());
  problems += print(topology::file_system_section(a.directory));
  problems += print(topology::limits_section());
  problems +=
      print(topology::slurm_section(environment, topology::output_of({"srun", "--mpi=list"}, 10s),
                                    topology::MpiSession::library_version()));
  problems += print(gpu_section());
  fmt::print("{}\n", problems == 0 ? std::string("nothing here stands in a run's way")
                                   : fmt::format("{} {} above, marked with !", problems,
                                                 plural(problems, "remark")));
  std::cout.flush();
  TESSERA_VALIDATE(problems == 0 || !a.strict, ConfigError, problems, " ",
                   plural(problems, "remark"), " on this node (--strict)");
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto const a = std::make_shared<DoctorArguments>();
  auto* doctor = app.add_subcommand(
      "doctor",
      "What this node offers a run and what stands in its way; with --why, what happened to a run");
  doctor->add_option("--why", a->why,
                     "Output directory of a run that ended: what happened and what to change");
  doctor->add_option("--log", a->log,
                     "With --why: the job's log file (default: the one Slurm remembers)");
  doctor->add_option("--dir", a->directory, "Where runs would write: its file system is looked at")
      ->capture_default_str();
  doctor->add_flag("--gpus", a->gpus,
                   "GPUs of this node, how they reach each other and the network, versions, "
                   "settings of NCCL that cost speed");
  doctor->add_flag("--strict", a->strict, "End with 78 when there is a remark");
  doctor->add_flag("--probe-mpi", a->probe_mpi)->group("");
  doctor->callback([a] {
    if (a->probe_mpi)
      probe_mpi();
    else if (!a->why.empty())
      explain(*a);
    else if (a->gpus)
      print_gpus();
    else
      examine(*a);
  });
}

}  // namespace tessera::cli
