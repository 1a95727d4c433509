#include "tessera/topology/processors.hpp"

#include "detail/hwloc_topology.hpp"

namespace tessera::topology {

std::optional<ProcessorCounts> count_processors() {
  auto const topology = load_hwloc_topology(HwlocScope::processors);
  if (!topology) return std::nullopt;
  auto const count = [&](hwloc_obj_type_t type) {
    return hwloc_get_nbobjs_by_type(topology.get(), type);
  };
  return ProcessorCounts{count(HWLOC_OBJ_PACKAGE), count(HWLOC_OBJ_NUMANODE), count(HWLOC_OBJ_CORE),
                         count(HWLOC_OBJ_PU)};
}

}  // namespace tessera::topology
