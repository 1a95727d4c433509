#pragma once
/// Distances between GPUs, network devices and cores, from hwloc.

#include <string>
#include <vector>

#include "tessera/topology/gpu_inventory.hpp"

namespace tessera::topology {

/// Network and fabric devices with their path from each GPU.
struct NetworkDevice {
  std::string name;  ///< "mlx5_0", "hsn0"
  std::vector<GpuPath> from_gpu;
};
std::vector<NetworkDevice> read_network_devices(std::vector<Gpu> const& gpus);

/// The cores of each PCI device's NUMA node or socket; empty where it is not known.
std::vector<std::vector<int>> cores_near(std::vector<std::string> const& pci_addresses);

}  // namespace tessera::topology
