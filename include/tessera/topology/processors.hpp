#pragma once
/// The processors of this node, from hwloc.

#include <optional>

namespace tessera::topology {

struct ProcessorCounts {
  int sockets = 0, numa_domains = 0, cores = 0, hardware_threads = 0;
};
/// Counts all processors of the node, including those that this process may not use. Nothing when
/// hwloc fails.
std::optional<ProcessorCounts> count_processors();

}  // namespace tessera::topology
