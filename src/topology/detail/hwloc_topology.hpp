#pragma once
/// The hwloc topology of this machine.

#include <hwloc.h>

#include <memory>
#include <type_traits>

namespace tessera::topology {

using HwlocTopology =
    std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, void (*)(hwloc_topology_t)>;

enum class HwlocScope {
  processors,  ///< packages, NUMA nodes and cores, including those that this process may not use
  devices,     ///< important PCI devices and bridges, with their ancestors
};

/// Null when hwloc cannot read the machine.
HwlocTopology load_hwloc_topology(HwlocScope scope);

}  // namespace tessera::topology
