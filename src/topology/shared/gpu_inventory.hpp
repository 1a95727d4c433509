#pragma once
/// The GPUs of this node, from NVIDIA's management library (NVML), which needs a driver, but no
/// CUDA runtime, and allocates no device memory. Their distances to network devices and cores come
/// from hwloc.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::topology {

struct Gpu {
  std::string name, uuid, bus;
  std::uint64_t total_bytes = 0, used_bytes = 0;
  bool mig = false;              ///< MIG mode is enabled
  int nvlinks = 0;               ///< active links
  std::int64_t ecc_errors = -1;  ///< uncorrected errors since the driver was loaded; -1: ECC is off
  int remapped_rows = -1;        ///< rows remapped after uncorrected errors; -1: unknown
  bool remap_pending = false, remap_failed = false;
};

/// Number of NVIDIA device files of this node (/dev/nvidia0, /dev/nvidia1, ...): its GPUs, without
/// a driver call.
int count_nvidia_devices();

/// The path between two devices, nearest first.
enum class GpuPath {
  same,
  nvlink,
  pci_switch,
  pci_bridges,
  host_bridge,
  numa_node,
  system,
  unknown
};

struct GpuInventory {
  std::string refusal;  ///< why NVML cannot be used; the rest is then empty
  std::string driver;   ///< "580.82.07"
  int runtime = 0;      ///< newest CUDA version that the driver supports, such as 13000
  std::vector<Gpu> gpus;
  std::vector<std::vector<GpuPath>> paths;  ///< [gpu][gpu]
};
/// @param file  the library; a name without a path is searched by the loader
GpuInventory read_gpu_inventory(std::string const& file = "libnvidia-ml.so.1");

char const* name_of(
    GpuPath path);  ///< as in nvidia-smi: "X", "NVL", "PIX", "PXB", "PHB", "NODE", "SYS", "?"

/// Network and fabric devices with their path from each GPU.
struct NetworkDevice {
  std::string name;  ///< "mlx5_0", "hsn0"
  std::vector<GpuPath> from_gpu;
};
std::vector<NetworkDevice> read_network_devices(std::vector<Gpu> const& gpus);

/// The cores of each PCI device's NUMA node or socket; empty where it is not known.
std::vector<std::vector<int>> cores_near(std::vector<std::string> const& pci_addresses);

}  // namespace tessera::topology
