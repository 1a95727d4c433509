#include "tessera/topology/cores.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <istream>
#include <string>
#include <string_view>

#include "detail/hwloc_topology.hpp"
#include "tessera/core/error.hpp"

namespace tessera::topology {
namespace {

/// Cores of Arm processors by implementer and part, the numbers of /proc/cpuinfo.
constexpr struct {
  std::string_view implementer, part, name;
} arm_cores[] = {{"0x41", "0xd0c", "Arm Neoverse N1"}, {"0x41", "0xd40", "Arm Neoverse V1"},
                 {"0x41", "0xd49", "Arm Neoverse N2"}, {"0x41", "0xd4f", "Arm Neoverse V2"},
                 {"0x46", "0x001", "Fujitsu A64FX"},   {"0xc0", "0xac3", "Ampere-1"}};

/// "200000 100000" of cpu.max, or the two files of version 1; 0: no limit, or no file.
double quota_in(std::string const& directory, bool unified) {
  double quota = -1.0, period = 0.0;
  if (unified) {
    std::ifstream(directory + "/cpu.max") >> quota >> period;  // "max 100000" reads no number
  } else {
    std::ifstream(directory + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(directory + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0.0 && period > 0.0 ? quota / period : 0.0;
}

/// The sum of 1 / (ranks that may run on the core) over the cores of a rank's mask.
double share_of_masks(CoreFacts const& facts, std::size_t rank) {
  double share = 0.0;
  for (int const core : facts.masks[rank]) {
    auto const sharing = std::ranges::count_if(
        facts.masks, [&](auto const& mask) { return std::ranges::binary_search(mask, core); });
    share += 1.0 / static_cast<double>(sharing);
  }
  return share + 1e-6;  // three thirds are one
}

}  // namespace

int share_of_cores(CoreFacts const& facts) {
  if (facts.wanted > 0) return facts.wanted;
  double const cores = std::floor(share_of_masks(facts, static_cast<std::size_t>(facts.rank)));
  double const allowed =
      facts.quota > 0.0 ? std::ceil(facts.quota / facts.quota_sharers - 1e-6) : cores;
  return std::max(1, static_cast<int>(std::min(cores, allowed)));
}

bool ranks_have_own_cores(CoreFacts const& facts) {
  double const needed = std::max(1, facts.wanted);
  if (facts.quota > 0.0 && facts.quota / facts.quota_sharers + 1e-6 < needed) return false;
  for (std::size_t rank = 0; rank < facts.masks.size(); ++rank)
    if (share_of_masks(facts, rank) < needed) return false;
  return true;
}

/// Any ancestor of the process's group may have a limit; the smallest counts. cgroups(7):
/// "hierarchy:controllers:path" lines.
double quota_of_control_groups() {
  double tightest = 0.0;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    auto const first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string const controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    bool const unified = controllers == ",,";
    if (!unified && controllers.find(",cpu,") == std::string::npos) continue;
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      double const quota = quota_in(
          (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu") + (path == "/" ? "" : path), unified);
      if (quota > 0.0 && (tightest == 0.0 || quota < tightest)) tightest = quota;
      if (path.size() <= 1) break;
    }
  }
  return tightest;
}

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

std::string processor_model(std::istream& cpuinfo) {
  std::string implementer;
  for (std::string line; std::getline(cpuinfo, line);) {
    auto const colon = line.find(": ");
    std::string const value = colon == std::string::npos ? "" : line.substr(colon + 2);
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer")) implementer = value;
    if (!line.starts_with("CPU part")) continue;
    for (auto const& core : arm_cores)
      if (core.implementer == implementer && core.part == value) return std::string(core.name);
    return concat("Arm, implementer ", implementer, ", part ", value);
  }
  return "unknown";
}

}  // namespace tessera::topology
