#pragma once
/// hwloc's view of this machine, freed at the end.

#include <hwloc.h>

#include <memory>
#include <type_traits>

namespace tessera::topology {

using HwlocTopology =
    std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, void (*)(hwloc_topology_t)>;

enum class HwlocScope {
  processors,  ///< packages, NUMA nodes, cores, also those that this process may not use
  devices,     ///< PCI devices and bridges that matter, with what is above them
};

/// Null when hwloc cannot read the machine.
HwlocTopology load_hwloc_topology(HwlocScope scope);

}  // namespace tessera::topology
