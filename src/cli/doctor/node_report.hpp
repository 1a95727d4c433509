#pragma once
/// Facts about a node and problems that affect runs, for `tessera doctor`: cores and memory, GPUs,
/// and the variables that steer MPI, UCX and libfabric. NVML is loaded at run time, so that this
/// program links no NVIDIA library.

#include <filesystem>
#include <iosfwd>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launch/mpi_launcher.hpp"
#include "tessera/topology/launcher.hpp"

namespace tessera::cli {

struct NodeSection {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::string> problems;  ///< each: what is wrong, why it matters, what to do
  void add(std::string name, std::string value) {
    facts.emplace_back(std::move(name), std::move(value));
  }
};

/// Processor model, sockets, NUMA domains and cores; cores and CPU quota of this process.
NodeSection processor_section();

/// The file system of @p directory (or of its nearest existing parent): type, free space and
/// inodes, write permission.
NodeSection file_system_section(std::filesystem::path const& directory);
/// Name of the f_type of statfs(2), such as "lustre"; "0x1234" for an unknown type.
std::string file_system_name(long magic);

/// Resource limits of this process that affect training or MPI (locked memory, open files, file
/// size, stack), and /dev/shm.
NodeSection limits_section();

/// The job's Slurm variables and contradictions between them. @param mpi_kinds output of `srun
/// --mpi=list`; empty: unknown
NodeSection slurm_section(topology::Environment const& environment, std::string const& mpi_kinds,
                          std::string const& mpi_library);

/// Who started this process, and the launchers in PATH; problem: one of another MPI family than
/// @p mpi_library, which would start worlds of one rank.
NodeSection launcher_section(topology::LauncherFacts const& facts,
                             std::vector<MpiLauncher> const& launchers,
                             std::string const& mpi_library);

/// Names of the network devices of a node.
struct NetworkDevices {
  std::set<std::string> interfaces;  ///< /sys/class/net: "eth0"
  std::set<std::string> adapters;    ///< /sys/class/infiniband: "mlx5_0"
};
NetworkDevices network_devices();

/// Every variable of MPI, UCX, libfabric and NCCL that is set; problems: those that turn a fast
/// path off, and devices that this node does not have.
NodeSection network_section(topology::Environment const& environment,
                            NetworkDevices const& devices);

/// The GPUs that this build can use on this node, and problems with them.
NodeSection gpu_section();

/// Prints the report of `tessera doctor --gpus`: devices, paths between them, and findings.
void print_gpus();

}  // namespace tessera::cli
