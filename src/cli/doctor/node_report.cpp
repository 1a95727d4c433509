#include "doctor/node_report.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>

#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/text.hpp"
#include "tessera/topology/cores.hpp"

namespace tessera::cli {
namespace {

using topology::Environment;
namespace fs = std::filesystem;

std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

/// "0-3,8" for ascending numbers.
std::string ranges(std::vector<int> const& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    out += concat(out.empty() ? "" : ",", numbers[i]);
    if (last > i) out += concat("-", numbers[last]);
    i = last + 1;
  }
  return out;
}

std::string limit_text(int resource, bool in_bytes) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return in_bytes ? human_bytes(static_cast<std::int64_t>(limit.rlim_cur))
                  : std::to_string(limit.rlim_cur);
}

std::string value_of(Environment const& environment, char const* name) {
  auto const found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

/// The first number of "4(x2)" or "8"; 0: none.
int number_of(Environment const& environment, char const* name) {
  return std::atoi(value_of(environment, name).c_str());
}

void check_job(Environment const& e, NodeSection& section) {
  int const threads = number_of(e, "OMP_NUM_THREADS"), cores = number_of(e, "SLURM_CPUS_ON_NODE");
  int const tasks = std::max(1, number_of(e, "SLURM_NTASKS_PER_NODE"));
  if (threads > 0 && cores > 0 && threads * tasks > cores)
    section.problems.push_back(concat("OMP_NUM_THREADS is ", threads, " and ", tasks,
                                      " tasks run per node, but the job has ", cores,
                                      " cores per node: threads will compete for cores; unset "
                                      "OMP_NUM_THREADS or request --cpus-per-task=",
                                      threads));
  std::string const per_task = value_of(e, "SLURM_CPUS_PER_TASK");
  bool const in_step = !value_of(e, "SLURM_STEP_ID").empty();
  if (!per_task.empty() && per_task != "1" && !in_step && value_of(e, "SRUN_CPUS_PER_TASK").empty())
    section.problems.push_back(
        concat("the job requests --cpus-per-task=", per_task,
               ", which srun ignores since Slurm 22.05: each task would get one core; ",
               "export SRUN_CPUS_PER_TASK=", per_task));
}

}  // namespace

NodeSection processor_section() {
  NodeSection section{"processor", {}, {}};
  utsname system{};
  ::uname(&system);
  section.add("host", concat(system.nodename, " (", system.sysname, " ", system.release, ", ",
                             system.machine, ")"));
  section.add("model", processor_model());
  if (auto const counts = topology::count_processors()) {
    auto const counted = [](int count, char const* noun) {
      return concat(count, " ", plural(count, noun));
    };
    section.add("hardware", concat(counted(counts->sockets, "socket"), ", ",
                                   counted(counts->numa_domains, "NUMA domain"), ", ",
                                   counted(counts->cores, "core"), ", ",
                                   counted(counts->hardware_threads, "hardware thread")));
  }
  auto const cores = allowed_cores();
  section.add("for this process", concat(cores.size(), " (", ranges(cores), ")"));
  double const quota = topology::quota_of_control_groups();
  section.add("quota", quota > 0.0 ? concat(quota, " cores (control group)") : "none");
  if (quota > 0.0 && quota + 1e-6 < static_cast<double>(cores.size()))
    section.problems.push_back(concat("the control group limits CPU time to ", quota,
                                      " cores, but ", cores.size(),
                                      " are visible: ranks use as many threads as the quota "
                                      "allows; other programs may be throttled"));
  return section;
}

std::string file_system_name(long magic) {
  static std::map<unsigned long, char const*> const names = {
      {0x0BD00BD0, "lustre"}, {0x47504653, "gpfs"},  {0x6969, "nfs"},
      {0x517B, "smb"},        {0xFF534D42, "cifs"},  {0x19830326, "beegfs"},
      {0xFEEDFACF, "panfs"},  {0x00C36400, "ceph"},  {0x65735546, "fuse"},
      {0x01021994, "tmpfs"},  {0x858458F6, "ramfs"}, {0xEF53, "ext4"},
      {0x58465342, "xfs"},    {0x9123683E, "btrfs"}, {0x794C7630, "overlay"},
      {0x2FC12FC1, "zfs"},    {0x6A656A63, "9p"},    {0x73717368, "squashfs"}};
  auto const found = names.find(static_cast<unsigned long>(magic) & 0xFFFFFFFFul);
  if (found != names.end()) return found->second;
  std::ostringstream out;
  out << "0x" << std::hex << (static_cast<unsigned long>(magic) & 0xFFFFFFFFul);
  return out.str();
}

NodeSection file_system_section(fs::path const& directory) {
  NodeSection section{"file system", {}, {}};
  std::error_code error;
  fs::path at = fs::absolute(directory);
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  section.add("directory", at.string());
  struct statfs kind {};
  struct statvfs room {};
  if (::statfs(at.c_str(), &kind) != 0 || ::statvfs(at.c_str(), &room) != 0) {
    section.problems.push_back(with_errno("cannot read the file system of " + at.string(), errno));
    return section;
  }
  std::string const name = file_system_name(kind.f_type);
  section.add("type", name);
  auto const block = static_cast<std::int64_t>(room.f_frsize);
  section.add("free space",
              concat(human_bytes(static_cast<std::int64_t>(room.f_bavail) * block), " of ",
                     human_bytes(static_cast<std::int64_t>(room.f_blocks) * block)));
  if (room.f_files > 0)
    section.add("free inodes", with_commas(static_cast<std::int64_t>(room.f_favail)));
  if (::access(at.c_str(), W_OK) != 0)
    section.problems.push_back(
        concat("no write permission in ", at.string(), "; choose another --output_dir"));
  if (room.f_bavail == 0)
    section.problems.push_back(concat(
        at.string(), " is full: no checkpoint can be written; free space, also in your quota"));
  if (name == "tmpfs" || name == "ramfs")
    section.problems.push_back(
        concat(at.string(),
               " is in the memory of this node: it counts against the job's memory limit and other "
               "nodes cannot read it; use a shared file system"));
  return section;
}

NodeSection limits_section() {
  NodeSection section{"limits", {}, {}};
  section.add("locked memory", limit_text(RLIMIT_MEMLOCK, true));
  section.add("open files", limit_text(RLIMIT_NOFILE, false));
  section.add("file size", limit_text(RLIMIT_FSIZE, true));
  section.add("address space", limit_text(RLIMIT_AS, true));
  section.add("stack", limit_text(RLIMIT_STACK, true));
  section.add("core files", limit_text(RLIMIT_CORE, true));
  rlimit locked{};
  std::error_code error;
  if (::getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY &&
      fs::exists("/dev/infiniband", error))
    section.problems.push_back(
        concat("locked memory is limited to ", limit_text(RLIMIT_MEMLOCK, true),
               " on a node with InfiniBand: MPI cannot register its buffers; ",
               "ask the administrators to set `ulimit -l unlimited` for slurmd"));
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    auto const bytes =
        static_cast<std::int64_t>(shm.f_blocks) * static_cast<std::int64_t>(shm.f_frsize);
    section.add("/dev/shm", human_bytes(bytes));
    if (bytes < (std::int64_t{128} << 20))
      section.problems.push_back(concat("/dev/shm has only ", human_bytes(bytes),
                                        ": MPI keeps buffers of all ranks of a node there; start "
                                        "the container with --shm-size=1g or --ipc=host"));
  } else {
    section.problems.push_back(
        "/dev/shm is missing: MPI uses slower transports between the ranks of a node; mount it");
  }
  return section;
}

NodeSection slurm_section(Environment const& e, std::string const& mpi_kinds,
                          std::string const& mpi_library) {
  NodeSection section{"Slurm", {}, {}};
  if (value_of(e, "SLURM_JOB_ID").empty()) section.add("job", "none: not inside a job");
  for (char const* name : {"SLURM_JOB_ID",          "SLURM_STEP_ID",       "SLURM_JOB_PARTITION",
                           "SLURM_JOB_NODELIST",    "SLURM_JOB_NUM_NODES", "SLURM_NTASKS",
                           "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK",
                           "SLURM_CPUS_ON_NODE",    "SLURM_MEM_PER_NODE",  "SLURM_MEM_PER_CPU",
                           "SLURM_GPUS_ON_NODE",    "SLURM_JOB_GPUS",      "SLURM_STEP_GPUS",
                           "SLURM_RESTART_COUNT",   "SLURM_JOB_END_TIME",  "SLURM_MPI_TYPE",
                           "OMP_NUM_THREADS",       "CUDA_VISIBLE_DEVICES"})
    if (auto const value = value_of(e, name); !value.empty()) section.add(name, value);
  if (!mpi_kinds.empty()) {
    std::string line;
    std::istringstream words(mpi_kinds);
    for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
    section.add("srun --mpi=list", line);
    if (mpi_library.starts_with("Open MPI") && line.find("pmix") == std::string::npos)
      section.problems.push_back(concat("this Slurm has no PMIx plugin, which ", mpi_library,
                                        " needs to find its ranks under srun; use mpirun inside "
                                        "the job, or ask the administrators for the plugin"));
  }
  if (auto const why = topology::why_mpi_cannot_start(topology::launcher_facts(e), mpi_library);
      !why.empty())
    section.problems.push_back(why);
  check_job(e, section);
  return section;
}

}  // namespace tessera::cli
