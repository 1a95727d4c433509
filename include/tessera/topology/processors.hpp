#pragma once
/// The processors of this node, from hwloc.

#include <optional>
#include <vector>

namespace tessera::topology {

struct ProcessorCounts {
  int sockets = 0, numa_domains = 0, cores = 0, hardware_threads = 0;
};
/// Counts all processors of the node, including those that this process may not use. Nothing when
/// hwloc fails.
std::optional<ProcessorCounts> count_processors();

/// The NUMA nodes with memory next to @p cores, as the system numbers both. Memory of GPUs and
/// high-bandwidth memory that the system shows as nodes are left out. Empty when these are all
/// nodes of the machine, so that there is no choice, and when hwloc fails.
std::vector<int> numa_nodes_near(std::vector<int> const& cores);

}  // namespace tessera::topology
