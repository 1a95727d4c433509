#pragma once
/// The GPUs of this node as NVIDIA's management library sees them: no CUDA, no device memory,
/// usable on any node with a driver.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::topology {

struct Gpu {
  std::string name, uuid, bus;
  std::uint64_t total_bytes = 0, used_bytes = 0;
  bool mig = false;              ///< cut into instances
  int nvlinks = 0;               ///< active links
  std::int64_t ecc_errors = -1;  ///< uncorrected since the driver was loaded; -1: not counted
  int remapped_rows = -1;        ///< after uncorrected errors; -1: not known
  bool remap_pending = false, remap_failed = false;
};

/// How two GPUs reach each other, nearest first.
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
  std::string refusal;  ///< why nothing is known; then the rest is empty
  std::string driver;   ///< "580.82.07"
  int cuda = 0;         ///< newest CUDA of the driver, 13000
  std::vector<Gpu> gpus;
  std::vector<std::vector<GpuPath>> paths;  ///< [gpu][gpu]
};
/// @param file  the library, libnvidia-ml.so.1 for the loader's search
GpuInventory read_gpu_inventory(std::string const& file = "libnvidia-ml.so.1");

char const* name_of(
    GpuPath path);  ///< as nvidia-smi's: "X", "NVL", "PIX", "PXB", "PHB", "NODE", "SYS", "?"

}  // namespace tessera::topology
