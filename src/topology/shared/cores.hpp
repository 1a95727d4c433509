#pragma once
/// The processors of this node, from hwloc, and how many cores the kernels of a rank may use: a
/// pure function of facts that cores_of_rank() collects.

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace tessera::topology {

struct CoreFacts {
  std::vector<std::vector<int>> masks;  ///< per rank of the node: the cores it may run on
  int rank = 0;                         ///< rank in question, an index of masks
  int wanted = 0;                       ///< OMP_NUM_THREADS; 0: not given
  double quota = 0.0;     ///< CPU quota of this rank's control group, in cores; 0: no limit
  int quota_sharers = 1;  ///< ranks of the node whose control groups have a quota
};

/// OMP_NUM_THREADS if given. Otherwise the sum of 1 / (ranks that may run on the core) over the
/// cores of the rank's mask, rounded down; at most the rank's share of the quota, rounded up; at
/// least 1.
int share_of_cores(CoreFacts const& facts);

/// Whether every rank of the node has at least one core, and as many as OMP_NUM_THREADS if given,
/// to itself: then a waiting thread keeps no other rank from computing.
bool ranks_have_own_cores(CoreFacts const& facts);

/// CPU quota of this process's control groups (cpu.max, or cpu.cfs_quota_us / cpu.cfs_period_us),
/// in cores; 0: no limit.
double quota_of_control_groups();

/// The processors of this node, from hwloc.
struct ProcessorCounts {
  int sockets = 0, numa_domains = 0, cores = 0, hardware_threads = 0;
};
/// Counts all processors of the node, including those that this process may not use. Nothing when
/// hwloc fails.
std::optional<ProcessorCounts> count_processors();

/// The processor's name in the text of /proc/cpuinfo, which on Arm has numbers instead.
std::string processor_model(std::istream& cpuinfo);

/// The NUMA nodes with memory next to @p cores, as the system numbers both. Memory of GPUs and
/// high-bandwidth memory that the system shows as nodes are left out. Empty when these are all
/// nodes of the machine, so that there is no choice, and when hwloc fails.
std::vector<int> numa_nodes_near(std::vector<int> const& cores);

}  // namespace tessera::topology
