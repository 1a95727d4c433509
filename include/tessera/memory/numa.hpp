#pragma once
/// NUMA nodes of this process's host memory. Linux: mbind(2), set_mempolicy(2).

#include <cstddef>
#include <vector>

namespace tessera::memory {

/// Buffers in host memory, pinned or not, that are made from now on prefer @p nodes (as the system
/// numbers them); when these are full, their pages come from other nodes. Empty: the system places
/// each page next to the core that first writes it.
/// @return false when the system does not support it; nothing changes then
bool use_numa_nodes(std::vector<int> const& nodes);
/// Those of the last successful call.
std::vector<int> numa_nodes();

}  // namespace tessera::memory
