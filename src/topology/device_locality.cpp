// Where devices are in the machine, by hwloc: "hwloc" manual, sections "I/O Devices" and "PCI device locality".
#include <hwloc.h>

#include <memory>

#include "tessera/topology/device_binding.hpp"

namespace tessera::topology {
namespace {

using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, void (*)(hwloc_topology_t)>;

/// Null when hwloc cannot say.
Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {nullptr, hwloc_topology_destroy};
  Topology topology(raw, hwloc_topology_destroy);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(raw) != 0) return {nullptr, hwloc_topology_destroy};
  return topology;
}

}  // namespace

std::vector<int> cores_near(std::string const& pci_address) {
  auto const topology = load_topology();
  if (!topology) return {};
  auto* const device = hwloc_get_pcidev_by_busidstring(topology.get(), pci_address.c_str());
  auto* const place = device ? hwloc_get_non_io_ancestor_obj(topology.get(), device) : nullptr;
  std::vector<int> cores;
  if (!place || !place->cpuset || hwloc_bitmap_iszero(place->cpuset)) return cores;
  for (int c = hwloc_bitmap_first(place->cpuset); c >= 0; c = hwloc_bitmap_next(place->cpuset, c)) cores.push_back(c);
  return cores;
}

}  // namespace tessera::topology
