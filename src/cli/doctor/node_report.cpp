#include "doctor/node_report.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "doctor/gpu_findings.hpp"
#include "launch/run_program.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/shared_library.hpp"
#include "tessera/core/text.hpp"
#include "tessera/core/words.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/topology/cores.hpp"
#include "tessera/topology/device_binding.hpp"
#include "tessera/topology/gpu_inventory.hpp"
#include "tessera/train/report/version.hpp"

namespace tessera::cli {
namespace {

using topology::Environment;
namespace fs = std::filesystem;

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
  std::ifstream cpuinfo("/proc/cpuinfo");
  section.add("model", topology::processor_model(cpuinfo));
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

NodeSection launcher_section(topology::LauncherFacts const& facts,
                             std::vector<MpiLauncher> const& launchers,
                             std::string const& mpi_library) {
  NodeSection section{"launcher", {}, {}};
  section.add("MPI of this build", mpi_library);
  auto const started = topology::launcher_name(facts.launcher);
  section.add("started by", started.empty() ? "no launcher"
                                            : concat(started, ", ", facts.size.value_or(1),
                                                     " processes (", facts.size_variable, ")"));
  for (auto const& launcher : launchers)
    section.add(launcher.program,
                launcher.version.empty() ? "of an MPI that is not known here" : launcher.version);
  auto const family = topology::mpi_family(mpi_library);
  auto const own = launcher_of(mpi_library, launchers);
  for (auto const& launcher : launchers) {
    bool const usual = launcher.program == "mpirun" || launcher.program == "mpiexec";
    auto const its_family = topology::mpi_family(launcher.version);
    if (!usual || its_family == family || its_family == topology::MpiFamily::unknown ||
        family == topology::MpiFamily::unknown)
      continue;
    section.problems.push_back(concat(
        launcher.program, " in PATH belongs to ", launcher.version, ", and Tessera's MPI is ",
        mpi_library, ": each process it starts would be a world of one rank; use ",
        own ? own->program : "srun, or load the module of " + mpi_library));
  }
  return section;
}

namespace fs = std::filesystem;
namespace {

using Words = std::vector<std::string>;

std::set<std::string> entries_of(fs::path const& directory) {
  std::set<std::string> out;
  std::error_code error;
  for (auto const& entry : fs::directory_iterator(directory, error))
    out.insert(entry.path().filename().string());
  return out;
}

bool any_of(std::string const& value, Words const& wanted) {
  return std::ranges::any_of(split(value, ','), [&](auto const& word) {
    return std::ranges::find(wanted, word) != wanted.end();
  });
}

/// A value that turns a fast path off. "Open MPI FAQ", "Frequently Asked Questions about UCX",
/// fi_provider(7), "MPICH environment variables".
struct Costly {
  char const* name;
  bool (*applies)(std::string const& value, NetworkDevices const& devices);
  char const* cost;
};
bool has_adapters(NetworkDevices const& devices) { return !devices.adapters.empty(); }

Costly const costly[] = {
    {"OMPI_MCA_btl",
     [](std::string const& value, NetworkDevices const&) {
       bool const shared = any_of(value, {"vader", "sm", "shared"});
       return value.starts_with('^') ? shared || any_of(value, {"^vader", "^sm"}) : !shared;
     },
     "MPI does not use shared memory between the ranks of a node; add vader (Open MPI 4) or sm"},
    {"OMPI_MCA_pml",
     [](std::string const& value, NetworkDevices const& devices) {
       return value == "ob1" && has_adapters(devices);
     },
     "MPI does not use UCX, the fast path of this node's adapters; unset it or use ucx"},
    {"OMPI_MCA_btl_vader_single_copy_mechanism",
     [](std::string const& value, NetworkDevices const&) { return value == "none"; },
     "MPI copies large messages within a node twice; needed only where ptrace is forbidden"},
    {"OMPI_MCA_mpi_yield_when_idle",
     [](std::string const& value, NetworkDevices const&) { return value == "1"; },
     "a waiting rank gives its core away: small messages take longer; for more ranks than cores"},
    {"UCX_TLS",
     [](std::string const& value, NetworkDevices const& devices) {
       return has_adapters(devices) && value != "all" && !value.starts_with('^') &&
              !any_of(value, {"rc", "rc_x", "rc_v", "rc_mlx5", "dc", "dc_x", "dc_mlx5", "ud",
                              "ud_x", "ib"});
     },
     "UCX does not use this node's adapters (rc, dc or ud); unset it"},
    {"FI_PROVIDER",
     [](std::string const& value, NetworkDevices const& devices) {
       return value == "sockets" || (value == "tcp" && has_adapters(devices));
     },
     "libfabric uses TCP sockets, many times slower than the fabric; unset it"},
    {"MPICH_NO_LOCAL", [](std::string const& value, NetworkDevices const&) { return value == "1"; },
     "MPI does not use shared memory between the ranks of a node; unset it"},
    {"TESSERA_SIMULATED_NODES", [](std::string const&, NetworkDevices const&) { return true; },
     "this machine counts as several nodes, for tests; unset it"},
    {"TESSERA_SIMULATED_NETWORK", [](std::string const&, NetworkDevices const&) { return true; },
     "messages between nodes are delayed, for tests; unset it"},
};

/// Variables whose value names interfaces or adapters.
struct DeviceVariable {
  char const* name;
  bool adapters;
  bool prefixes;  ///< NCCL's names are prefixes of device names
};
constexpr DeviceVariable device_variables[] = {{"OMPI_MCA_btl_tcp_if_include", false, false},
                                               {"OMPI_MCA_oob_tcp_if_include", false, false},
                                               {"UCX_NET_DEVICES", true, false},
                                               {"FI_TCP_IFACE", false, false},
                                               {"NCCL_SOCKET_IFNAME", false, true},
                                               {"NCCL_IB_HCA", true, true}};

/// The names in @p value that are no device of this node; subnets (10.0.0.0/8) are not looked up.
Words missing_devices(DeviceVariable const& variable, std::string const& value,
                      NetworkDevices const& devices) {
  Words out;
  if (value.empty() || value == "all" || value.starts_with('^')) return out;
  for (auto name : split(value, ',')) {
    if (name.find('/') != std::string::npos) continue;
    if (name.starts_with('=')) name.erase(0, 1);
    name = name.substr(0, name.find(':'));  // mlx5_0:1 is port 1 of mlx5_0
    auto const known = [&](std::set<std::string> const& names) {
      return std::ranges::any_of(names, [&](auto const& device) {
        return variable.prefixes ? device.starts_with(name) : device == name;
      });
    };
    // UCX takes names of both kinds
    if (!(variable.adapters && known(devices.adapters)) && !known(devices.interfaces))
      out.push_back(name);
  }
  return out;
}

bool steers_messages(std::string const& name) {
  Words const prefixes{"OMPI_MCA_", "PRTE_MCA_", "UCX_", "FI_", "MPICH_", "I_MPI_", "NCCL_"};
  return name.starts_with("TESSERA_SIMULATED_") || name == "TESSERA_LINKS" ||
         std::ranges::any_of(prefixes, [&](auto const& p) { return name.starts_with(p); });
}

/// mpirun itself sets these for its ranks.
bool is_of_the_launcher(std::string const& name) {
  Words const prefixes{"OMPI_MCA_ess", "OMPI_MCA_orte", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir",
                       "OMPI_MCA_shmem_RUNTIME"};
  return std::ranges::any_of(prefixes, [&](auto const& p) { return name.starts_with(p); });
}

std::string names_text(std::set<std::string> const& names) {
  return names.empty() ? "none" : join({names.begin(), names.end()});
}

}  // namespace

NetworkDevices network_devices() {
  return {entries_of("/sys/class/net"), entries_of("/sys/class/infiniband")};
}

NodeSection network_section(topology::Environment const& environment,
                            NetworkDevices const& devices) {
  NodeSection section{"network", {}, {}};
  section.add("interfaces", names_text(devices.interfaces));
  section.add("InfiniBand, RoCE", names_text(devices.adapters));
  for (auto const& [name, value] : environment)
    if (steers_messages(name) && !is_of_the_launcher(name)) section.add(name, value);
  for (auto const& known : costly)
    if (auto const set = environment.find(known.name);
        set != environment.end() && known.applies(set->second, devices))
      section.problems.push_back(concat(known.name, "=", set->second, ": ", known.cost));
  for (auto const& variable : device_variables) {
    auto const set = environment.find(variable.name);
    if (set == environment.end()) continue;
    if (auto const missing = missing_devices(variable, set->second, devices); !missing.empty())
      section.problems.push_back(
          concat(variable.name, "=", set->second, ": this node has no ", join(missing), "; it has ",
                 names_text(variable.adapters ? devices.adapters : devices.interfaces)));
  }
  return section;
}

namespace {

using topology::GpuPath;

void print_devices(topology::GpuInventory const& inventory) {
  for (std::size_t i = 0; i < inventory.gpus.size(); ++i) {
    auto const& gpu = inventory.gpus[i];
    std::string const ecc =
        gpu.ecc_errors < 0 ? "ECC off" : fmt::format("{} uncorrected ECC errors", gpu.ecc_errors);
    std::string const rows =
        gpu.remapped_rows < 0 ? "" : fmt::format(", {} remapped rows", gpu.remapped_rows);
    fmt::print("GPU {}  {}  {} free of {}  {}  {}{}, MIG {}, {} NVLinks\n       {}\n", i, gpu.name,
               human_bytes(static_cast<std::int64_t>(gpu.total_bytes - gpu.used_bytes)),
               human_bytes(static_cast<std::int64_t>(gpu.total_bytes)), gpu.bus, ecc, rows,
               gpu.mig ? "on" : "off", gpu.nvlinks, gpu.uuid);
  }
}

/// One row per GPU, one column per GPU and network device.
void print_paths(topology::GpuInventory const& inventory,
                 std::vector<topology::NetworkDevice> const& networks) {
  if (inventory.gpus.empty()) return;
  fmt::print("\n{:<8}", "");
  for (std::size_t i = 0; i < inventory.gpus.size(); ++i)
    fmt::print("{:<8}", fmt::format("GPU {}", i));
  for (auto const& network : networks) fmt::print("{:<10}", network.name);
  fmt::print("\n");
  for (std::size_t a = 0; a < inventory.gpus.size(); ++a) {
    fmt::print("{:<8}", fmt::format("GPU {}", a));
    for (auto const path : inventory.paths[a]) fmt::print("{:<8}", name_of(path));
    for (auto const& network : networks) fmt::print("{:<10}", name_of(network.from_gpu[a]));
    fmt::print("\n");
  }
  fmt::print(
      "NVL: NVLink; PIX: one PCIe switch; PXB: several; PHB: the processor's PCIe bridge; NODE: "
      "within a NUMA node or socket; SYS: between sockets\n");
}

/// Version of the NCCL library that the loader finds; empty: none.
std::string installed_nccl() {
  SharedLibrary const library({"libnccl.so.2"});
  int (*version)(int*) = nullptr;
  int number = 0;
  if (!library.find("ncclGetVersion", version) || version(&number) != 0) return "";
  return concat(number / 10000, ".", number / 100 % 100, ".", number % 100);
}

void print_lines(char const* title, std::vector<std::string> const& lines) {
  if (!lines.empty()) fmt::print("\n{}\n", title);
  for (auto const& line : lines) fmt::print("  - {}\n", line);
}

}  // namespace

void print_gpus() {
  using namespace std::chrono_literals;
  auto const inventory = topology::read_gpu_inventory();
  GpuSoftware const software{memory::device_runtime_version(), installed_nccl()};
  fmt::print("driver {} (runtime {}); this build: runtime {}; NCCL {}\n",
             inventory.driver.empty() ? "none" : inventory.driver,
             runtime_version_text(inventory.runtime), runtime_version_text(software.runtime),
             software.nccl.empty() ? "not found" : software.nccl);
  print_devices(inventory);
  print_paths(inventory, topology::read_network_devices(inventory.gpus));
  auto findings = gpu_findings(inventory, software);
  auto const environment = topology::process_environment();
  for (auto const& finding : topology::device_view_findings(environment))
    findings.push_back(finding);
  for (auto const& finding : xid_findings(output_of({"dmesg"}, 5s))) findings.push_back(finding);
  print_lines("Findings", findings);
  print_lines("NCCL settings", nccl_findings(environment));
}

NodeSection gpu_section() {
  NodeSection section{"GPU", {}, {}};
  auto const versions = train::build_versions();
  section.add("this build", memory::built_with_gpu() ? versions.at("device").as_string()
                                                     : "without GPU support: trains on the CPU");
  int const devices = topology::count_nvidia_devices();
  section.add("devices of this node", std::to_string(devices));
  if (char const* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
    section.add("CUDA_VISIBLE_DEVICES", visible);
  if (devices > 0 && !memory::built_with_gpu())
    section.problems.push_back(
        "this node has NVIDIA devices but this build has no GPU support; build with "
        "-DTESSERA_ENABLE_CUDA=ON, or load the module of a build for GPUs");
  if (!memory::built_with_gpu()) return section;
  auto const found = memory::find_devices();
  section.add("usable", std::to_string(found.count));
  if (found.count == 0) section.problems.push_back("no usable GPU: " + found.reason);
  return section;
}

}  // namespace tessera::cli
