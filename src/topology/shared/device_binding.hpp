#pragma once
/// Which GPU and which cores a rank uses. Pure functions; the memory layer owns the devices.

#include <string>
#include <vector>

#include "tessera/topology/launcher.hpp"

namespace tessera::topology {

/// A rank's position among the ranks of its node.
struct LocalRank {
  int index = 0;
  int count = 1;
};

/// Cores of the ranks of a node, by local rank, and those near its devices, by ordinal.
struct NodeCores {
  std::vector<std::vector<int>> of_rank;
  std::vector<std::vector<int>> near_device;
};

/// Ordinal among the devices visible to the process. With one visible device, the launcher has
/// given each rank its own (srun --gpus-per-task). With at least as many devices as ranks, the
/// local rank is the ordinal, unless ranks are bound to cores: then each takes, in the order of the
/// ranks, the free device with the most of its cores near it. With fewer devices, ranks share them
/// round-robin, and `warning` says so. All ranks of a node pass the same @p cores.
struct DeviceBinding {
  int ordinal = -1;
  std::string warning;
  bool operator==(DeviceBinding const&) const = default;
};
DeviceBinding bind_device(LocalRank rank, int visible, NodeCores const& cores = {});

/// Problems with the device list in CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER and Slurm's variables,
/// one finding per line: empty or invalid lists, devices from Slurm that the list hides, MIG
/// instances. Rules: "CUDA C++ Programming Guide", "CUDA Environment Variables"; "NVIDIA
/// Multi-Instance GPU User Guide", "CUDA Visible Devices".
std::vector<std::string> device_view_findings(Environment const& environment);

/// The device of a rank, named the same in all processes.
struct RankDevice {
  std::string node;  ///< a text that is equal for all ranks of a node
  std::string bus;   ///< PCI address
  std::string uuid;  ///< UUID of the device or MIG instance
};
/// Whether ranks share a GPU, and a notice which ones do and what that costs. MIG instances of one
/// GPU count as shared: NCCL does not connect them.
struct DeviceSharing {
  bool shared = false;
  std::string notice;
};
DeviceSharing device_sharing(std::vector<RankDevice> const& of_rank);

/// The allowed cores that are near the rank's device. All allowed cores when none is near, or when
/// the launcher or user has already restricted them: @p allowed differs from @p online.
std::vector<int> cores_to_use(std::vector<int> const& allowed, std::vector<int> const& online,
                              std::vector<int> const& near);

}  // namespace tessera::topology
