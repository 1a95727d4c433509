#pragma once
/// Where GPUs, network devices and cores are in the machine, by hwloc.

#include <string>
#include <vector>

#include "tessera/topology/gpu_inventory.hpp"

namespace tessera::topology {

/// Fabric and network devices with their distance from each GPU, by hwloc.
struct NetworkDevice {
  std::string name;  ///< "mlx5_0", "hsn0"
  std::vector<GpuPath> from_gpu;
};
std::vector<NetworkDevice> read_network_devices(std::vector<Gpu> const& gpus);

/// The cores near the PCI device (its NUMA node or socket); empty when that is not known.
std::vector<int> cores_near(std::string const& pci_address);

}  // namespace tessera::topology
