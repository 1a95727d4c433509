#include "tessera/topology/gpu_inventory.hpp"

#include <cstdint>
#include <filesystem>

#include "detail/hwloc_topology.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/shared_library.hpp"

namespace tessera::topology::detail {
namespace {

using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total, free, used;
};
/// nvmlPciInfo_t
struct NvmlPci {
  char bus_legacy[16];
  unsigned domain, bus, device, pci_device, pci_subsystem;
  char bus_id[32];
};

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  char const* (*error_text)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*cuda_version)(int*) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*pci)(NvmlDevice, NvmlPci*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*mig_mode)(NvmlDevice, unsigned*, unsigned*) = nullptr;
  int (*link_state)(NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*ecc_errors)(NvmlDevice, unsigned, unsigned, unsigned long long*) = nullptr;
  int (*remapped)(NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  int (*ancestor)(NvmlDevice, NvmlDevice, unsigned*) = nullptr;
  int (*p2p)(NvmlDevice, NvmlDevice, unsigned, unsigned*) = nullptr;

  SharedLibrary library;
  /// Whether the library and its required functions were found. Others may be null with old
  /// drivers.
  bool load(std::string const& file) {
    library = SharedLibrary({file});
    library.find("nvmlShutdown", shutdown);
    library.find("nvmlErrorString", error_text);
    library.find("nvmlSystemGetDriverVersion", driver_version);
    library.find("nvmlSystemGetCudaDriverVersion_v2", cuda_version);
    library.find("nvmlDeviceGetName", name);
    library.find("nvmlDeviceGetUUID", uuid);
    library.find("nvmlDeviceGetPciInfo_v3", pci);
    library.find("nvmlDeviceGetMemoryInfo", memory);
    library.find("nvmlDeviceGetMigMode", mig_mode);
    library.find("nvmlDeviceGetNvLinkState", link_state);
    library.find("nvmlDeviceGetTotalEccErrors", ecc_errors);
    library.find("nvmlDeviceGetRemappedRows", remapped);
    library.find("nvmlDeviceGetTopologyCommonAncestor", ancestor);
    library.find("nvmlDeviceGetP2PStatus", p2p);
    return library.find("nvmlInit_v2", init) && library.find("nvmlDeviceGetCount_v2", count) &&
           library.find("nvmlDeviceGetHandleByIndex_v2", handle);
  }
};

}  // namespace
}  // namespace tessera::topology::detail

namespace tessera::topology {
namespace {

using detail::Nvml;
using detail::NvmlDevice;

constexpr unsigned max_links = 18, uncorrected = 1, since_driver = 0, by_nvlink = 2;

template <class Function>
std::string text_from(Function* function, NvmlDevice device) {
  char text[96] = "";
  return function && function(device, text, sizeof text) == 0 ? text : "";
}

Gpu read_gpu(Nvml const& nvml, NvmlDevice device) {
  Gpu gpu;
  gpu.name = text_from(nvml.name, device);
  gpu.uuid = text_from(nvml.uuid, device);
  detail::NvmlPci pci{};
  if (nvml.pci && nvml.pci(device, &pci) == 0) gpu.bus = pci.bus_id;
  detail::NvmlMemory memory{};
  if (nvml.memory && nvml.memory(device, &memory) == 0) {
    gpu.total_bytes = memory.total;
    gpu.used_bytes = memory.used;
  }
  unsigned now = 0, later = 0;
  gpu.mig = nvml.mig_mode && nvml.mig_mode(device, &now, &later) == 0 && now == 1;
  for (unsigned link = 0; nvml.link_state && link < max_links; ++link) {
    unsigned active = 0;
    if (nvml.link_state(device, link, &active) == 0 && active == 1) ++gpu.nvlinks;
  }
  unsigned long long errors = 0;
  if (nvml.ecc_errors && nvml.ecc_errors(device, uncorrected, since_driver, &errors) == 0)
    gpu.ecc_errors = static_cast<std::int64_t>(errors);
  unsigned corrected_rows = 0, rows = 0, pending = 0, failed = 0;
  if (nvml.remapped && nvml.remapped(device, &corrected_rows, &rows, &pending, &failed) == 0) {
    gpu.remapped_rows = static_cast<int>(rows);
    gpu.remap_pending = pending != 0;
    gpu.remap_failed = failed != 0;
  }
  return gpu;
}

GpuPath path_between(Nvml const& nvml, NvmlDevice a, NvmlDevice b) {
  unsigned status = 1, level = 0;
  if (nvml.p2p && nvml.p2p(a, b, by_nvlink, &status) == 0 && status == 0) return GpuPath::nvlink;
  if (!nvml.ancestor || nvml.ancestor(a, b, &level) != 0) return GpuPath::unknown;
  switch (level) {  // nvmlGpuTopologyLevel_t
    case 0:
    case 10:
      return GpuPath::pci_switch;
    case 20:
      return GpuPath::pci_bridges;
    case 30:
      return GpuPath::host_bridge;
    case 40:
      return GpuPath::numa_node;
    case 50:
      return GpuPath::system;
    default:
      return GpuPath::unknown;
  }
}

void read_all(Nvml const& nvml, GpuInventory& out) {
  char driver[96] = "";
  if (nvml.driver_version && nvml.driver_version(driver, sizeof driver) == 0) out.driver = driver;
  if (nvml.cuda_version) nvml.cuda_version(&out.runtime);
  unsigned count = 0;
  if (int const status = nvml.count(&count); status != 0)
    out.refusal = concat("NVML cannot count devices (error ", status, ")");
  std::vector<NvmlDevice> devices;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    if (nvml.handle(i, &device) != 0) continue;  // no permission
    devices.push_back(device);
    out.gpus.push_back(read_gpu(nvml, device));
  }
  for (auto* const a : devices) {
    out.paths.emplace_back();
    for (auto* const b : devices)
      out.paths.back().push_back(a == b ? GpuPath::same : path_between(nvml, a, b));
  }
}

}  // namespace

GpuInventory read_gpu_inventory(std::string const& file) {
  GpuInventory out;
  Nvml nvml;
  if (!nvml.load(file)) {
    out.refusal = nvml.library.loaded()
                      ? file + " is not an NVML library of a driver from 2019 or later"
                      : concat("no NVIDIA driver on this node (", nvml.library.load_error(), ")");
    return out;
  }
  if (int const status = nvml.init(); status != 0) {
    out.refusal =
        concat("NVML initialization failed: ", nvml.error_text ? nvml.error_text(status) : "",
               " (error ", status, ")");
    return out;
  }
  read_all(nvml, out);
  if (nvml.shutdown) nvml.shutdown();
  return out;
}

int count_nvidia_devices() {
  int count = 0;
  while (std::filesystem::exists("/dev/nvidia" + std::to_string(count))) ++count;
  return count;
}

char const* name_of(GpuPath path) {
  switch (path) {
    case GpuPath::same:
      return "X";
    case GpuPath::nvlink:
      return "NVL";
    case GpuPath::pci_switch:
      return "PIX";
    case GpuPath::pci_bridges:
      return "PXB";
    case GpuPath::host_bridge:
      return "PHB";
    case GpuPath::numa_node:
      return "NODE";
    case GpuPath::system:
      return "SYS";
    case GpuPath::unknown:
      break;
  }
  return "?";
}

// See the hwloc manual, sections "I/O Devices" and "PCI device locality".
namespace {

hwloc_obj_t pci_device_above(hwloc_obj_t object) {
  while (object && object->type != HWLOC_OBJ_PCI_DEVICE) object = object->parent;
  return object;
}

/// Finds the path by the type of the nearest common ancestor.
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
