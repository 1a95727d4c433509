#include "doctor/doctor_command.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <memory>

#include "doctor/diagnosis.hpp"
#include "doctor/gpu_report.hpp"
#include "launch/run_program.hpp"
#include "slurm/job_record.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/limits.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/train/version.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

using namespace std::chrono_literals;
struct DoctorArguments {
  std::string why, log, directory = ".";
  bool strict = false, gpus = false, probe_mpi = false;
};

void explain(DoctorArguments const& a) {
  auto const status = ConfigTree::read(fs::path(a.why) / "status.json");
  std::string const job = status.get_string("SLURM_JOB_ID", "");
  TESSERA_VALIDATE(a.log.empty() || fs::exists(a.log), IoError, "no log file ", a.log,
                   "; give the job's log with --log");
  auto const record = read_job_record(job, a.log);
  auto const diagnosis = diagnose(status, record);
  fmt::print("{}\n", diagnosis.what);
  if (!record.state.empty()) fmt::print("Slurm state of job {}: {}\n", job, record.state);
  if (!record.evidence.empty()) fmt::print("{}: {}\n", record.log, record.evidence);
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

/// Starts MPI in a child process: on a login node MPI may hang or end its process.
NodeSection library_section() {
  NodeSection section{"libraries", {}, {}};
  auto const versions = train::versions_tree();
  for (char const* name : {"tessera", "commit", "build", "mpi", "hdf5", "kokkos", "blas"})
    section.add(name, versions.at(name).as_string());
  auto const probe = run_program(
      {fs::read_symlink("/proc/self/exe").string(), "doctor", "--probe-mpi"}, 30s, Capture::both);
  std::string const text = probe.output.substr(0, probe.output.find_last_not_of('\n') + 1);
  if (probe.code == 0)
    section.add("MPI starts", text.substr(text.rfind('\n') + 1));
  else
    section.problems.push_back(concat(
        "MPI does not start on this node (",
        probe.code < 0 ? std::string("no exit within 30 s") : concat("exit code ", probe.code),
        "); a login node may forbid it. Output: ", text.substr(0, 600)));
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
  problems += print(processor_section());
  problems += print(memory_section());
  problems += print(library_section());
  problems += print(file_system_section(a.directory));
  problems += print(limits_section());
  problems += print(slurm_section(environment, output_of({"srun", "--mpi=list"}, 10s),
                                  topology::MpiSession::library_version()));
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

void add_doctor(CLI::App& app) {
  auto const a = std::make_shared<DoctorArguments>();
  auto* doctor = app.add_subcommand(
      "doctor",
      "Check this node for problems that affect runs; with --why, explain why a run ended");
  doctor->add_option("--why", a->why,
                     "Output directory of a run that ended: print why, and what to change");
  doctor->add_option("--log", a->log,
                     "With --why: the job's log file (default: the path that Slurm reports)");
  doctor
      ->add_option("--dir", a->directory, "Output directory of runs, whose file system is checked")
      ->capture_default_str();
  doctor->add_flag("--gpus", a->gpus,
                   "Print the GPUs of this node, their links to each other and to the network, "
                   "versions, and NCCL settings that cost speed");
  doctor->add_flag("--strict", a->strict, "Exit with 78 if a problem is found");
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
