#include "tessera/topology/device_locality.hpp"

#include "detail/hwloc_topology.hpp"

// See the hwloc manual, sections "I/O Devices" and "PCI device locality".
namespace tessera::topology {
namespace {

hwloc_obj_t pci_device_above(hwloc_obj_t object) {
  while (object && object->type != HWLOC_OBJ_PCI_DEVICE) object = object->parent;
  return object;
}

/// From the type of the nearest common ancestor.
GpuPath path_between(hwloc_topology_t topology, hwloc_obj_t a, hwloc_obj_t b) {
  if (!a || !b) return GpuPath::unknown;
  auto* const common = hwloc_get_common_ancestor_obj(topology, a, b);
  if (!common) return GpuPath::unknown;
  if (common->type == HWLOC_OBJ_BRIDGE &&
      common->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI)
    return common == a->parent || common == b->parent ? GpuPath::pci_switch : GpuPath::pci_bridges;
  if (common->type == HWLOC_OBJ_BRIDGE) return GpuPath::host_bridge;
  return hwloc_bitmap_isequal(common->cpuset, hwloc_get_root_obj(topology)->cpuset) &&
                 hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE) > 1
             ? GpuPath::system
             : GpuPath::numa_node;
}

}  // namespace

std::vector<NetworkDevice> read_network_devices(std::vector<Gpu> const& gpus) {
  std::vector<NetworkDevice> out;
  auto const topology = load_hwloc_topology(HwlocScope::devices);
  if (!topology) return out;
  for (auto* object = hwloc_get_next_osdev(topology.get(), nullptr); object;
       object = hwloc_get_next_osdev(topology.get(), object)) {
    auto const kind = object->attr->osdev.type;
    auto* const device = pci_device_above(object);
    if (!object->name || !device ||
        (kind != HWLOC_OBJ_OSDEV_OPENFABRICS && kind != HWLOC_OBJ_OSDEV_NETWORK))
      continue;
    NetworkDevice network{object->name, {}};
    for (auto const& gpu : gpus)
      network.from_gpu.push_back(
          path_between(topology.get(), device,
                       hwloc_get_pcidev_by_busidstring(topology.get(), gpu.bus.c_str())));
    out.push_back(std::move(network));
  }
  return out;
}

std::vector<std::vector<int>> cores_near(std::vector<std::string> const& pci_addresses) {
  std::vector<std::vector<int>> out(pci_addresses.size());
  auto const topology = load_hwloc_topology(HwlocScope::devices);
  for (std::size_t i = 0; topology && i < out.size(); ++i) {
    auto* const device = hwloc_get_pcidev_by_busidstring(topology.get(), pci_addresses[i].c_str());
    auto* const place = device ? hwloc_get_non_io_ancestor_obj(topology.get(), device) : nullptr;
    if (!place || !place->cpuset || hwloc_bitmap_iszero(place->cpuset)) continue;
    for (int c = hwloc_bitmap_first(place->cpuset); c >= 0; c = hwloc_bitmap_next(place->cpuset, c))
      out[i].push_back(c);
  }
  return out;
}

}  // namespace tessera::topology
