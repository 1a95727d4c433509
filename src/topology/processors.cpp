#include "tessera/topology/processors.hpp"

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "detail/hwloc_topology.hpp"

namespace tessera::topology {
namespace {

/// hwloc names other kinds of memory in the subtype: "GPUMemory", "HBM", "MCDRAM".
bool is_main_memory(hwloc_obj_t node) {
  return !node->subtype || std::string_view(node->subtype) == "DRAM";
}

/// Without hwloc, which reads some files per core: it costs each rank milliseconds at its start.
/// Its own variables may describe another machine.
bool has_one_node() {
  if (std::getenv("HWLOC_SYNTHETIC") || std::getenv("HWLOC_XMLFILE")) return false;
  std::string online;
  std::ifstream("/sys/devices/system/node/online") >> online;
  return !online.empty() && online.find_first_of("-,") == std::string::npos;
}

}  // namespace

std::optional<ProcessorCounts> count_processors() {
  auto const topology = load_hwloc_topology(HwlocScope::processors);
  if (!topology) return std::nullopt;
  auto const count = [&](hwloc_obj_type_t type) {
    return hwloc_get_nbobjs_by_type(topology.get(), type);
  };
  return ProcessorCounts{count(HWLOC_OBJ_PACKAGE), count(HWLOC_OBJ_NUMANODE), count(HWLOC_OBJ_CORE),
                         count(HWLOC_OBJ_PU)};
}

std::vector<int> numa_nodes_near(std::vector<int> const& cores) {
  std::vector<int> near;
  if (has_one_node()) return near;
  auto const topology = load_hwloc_topology(HwlocScope::processors);
  if (!topology) return near;
  std::size_t all = 0;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node));) {
    if (!is_main_memory(node)) continue;
    ++all;
    for (int const core : cores)
      if (core >= 0 && hwloc_bitmap_isset(node->cpuset, static_cast<unsigned>(core))) {
        near.push_back(static_cast<int>(node->os_index));
        break;
      }
  }
  return near.size() < all ? near : std::vector<int>{};
}

}  // namespace tessera::topology
