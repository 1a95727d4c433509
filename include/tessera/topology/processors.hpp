#pragma once
/// The processors of this node, by hwloc.

#include <optional>

namespace tessera::topology {

struct ProcessorCounts {
  int sockets = 0, numa_domains = 0, cores = 0, hardware_threads = 0;
};
/// All processors of the node, also those that this process may not use; nothing when hwloc cannot
/// read the machine.
std::optional<ProcessorCounts> count_processors();

}  // namespace tessera::topology
