#pragma once
/// The GPUs of this node as NVIDIA's management library sees them: no CUDA, no device memory,
/// usable on any node with a driver.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/topology/launcher.hpp"

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

/// Fabric and network devices with their distance from each GPU, by hwloc.
struct NetworkDevice {
  std::string name;  ///< "mlx5_0", "hsn0"
  std::vector<GpuPath> from_gpu;
};
std::vector<NetworkDevice> read_network_devices(std::vector<Gpu> const& gpus);

char const* name_of(
    GpuPath path);  ///< as nvidia-smi's: "X", "NVL", "PIX", "PXB", "PHB", "NODE", "SYS", "?"

/// Versions of what is installed beside the driver; empty: not there.
struct GpuSoftware {
  int runtime = 0;   ///< CUDA runtime of this build, 13000; 0: built without
  std::string nccl;  ///< "2.28.9"
};
/// The NCCL that the loader finds.
std::string installed_nccl();

/// What is wrong or costs speed, one line each: no driver, driver older than the runtime, ECC and
/// row remapping, MIG, no NVLink.
std::vector<std::string> gpu_findings(GpuInventory const& inventory, GpuSoftware const& software);

/// NCCL's variables that are set; those that switch something off or belong to debugging say what
/// that costs. "NCCL" user guide, "Environment Variables".
std::vector<std::string> nccl_findings(Environment const& environment);

/// Xid errors in the kernel's log: "GPU 0000:17:00: Xid 79, the GPU has fallen off the bus".
/// "NVIDIA GPU Debug Guidelines", "XID Errors".
std::vector<std::string> xid_findings(std::string const& kernel_log);

}  // namespace tessera::topology
