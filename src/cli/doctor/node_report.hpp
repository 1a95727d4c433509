#pragma once
/// What a node offers a run, as lines for people, and what stands in a run's way. For `tessera
/// doctor`.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tessera/topology/launcher.hpp"

namespace tessera::cli {

struct NodeSection {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::string> problems;  ///< what is wrong, why that matters, what to do
  void add(std::string name, std::string value) {
    facts.emplace_back(std::move(name), std::move(value));
  }
};

/// Processor, NUMA domains and cores by hwloc; the cores and the quota of this process.
NodeSection processor_section();

/// The file system below @p directory (or below its nearest existing parent): kind, room, free
/// inodes, this user's right to write.
NodeSection file_system_section(std::filesystem::path const& directory);
/// "lustre" for f_type of statfs(2); "0x1234" for one that is not known.
std::string file_system_name(long magic);

/// Limits of this process that training or MPI meets: locked memory, open files, file size, stack;
/// /dev/shm.
NodeSection limits_section();

/// The job's Slurm variables and what does not fit together in them. @param mpi_kinds output of
/// `srun --mpi=list`, empty: unknown
NodeSection slurm_section(topology::Environment const& environment, std::string const& mpi_kinds,
                          std::string const& mpi_library);

}  // namespace tessera::cli
