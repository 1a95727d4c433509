#include "detail/hwloc_topology.hpp"

namespace tessera::topology {

HwlocTopology load_hwloc_topology(HwlocScope scope) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {nullptr, hwloc_topology_destroy};
  HwlocTopology topology(raw, hwloc_topology_destroy);
  if (scope == HwlocScope::processors)
    hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  else
    hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(raw) != 0) return {nullptr, hwloc_topology_destroy};
  return topology;
}

}  // namespace tessera::topology
