#pragma once
/// Which GPU a rank takes, and which cores lie near it. Values and texts only; the devices
/// themselves are the memory layer's.

#include <string>
#include <vector>

#include "tessera/topology/launcher.hpp"

namespace tessera::topology {

/// Ordinal among the devices that the process sees. One visible: a launcher has given each rank its
/// own (srun --gpus-per-task). As many as ranks or more: by local rank. Fewer: ranks share them in
/// turn, and `warning` says so.
struct DeviceBinding {
  int ordinal = -1;
  std::string warning;
  bool operator==(DeviceBinding const&) const = default;
};
DeviceBinding bind_device(int local_rank, int local_size, int visible);

/// What CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER and Slurm's variables do to the list of devices,
/// one finding a line: empty or broken lists, devices that Slurm gave and the list hides, MIG
/// instances. Rules: "CUDA C++ Programming Guide", "CUDA Environment Variables"; "NVIDIA
/// Multi-Instance GPU User Guide", "CUDA Visible Devices".
std::vector<std::string> device_view_findings(Environment const& environment);

/// A rank's device as every process sees it.
struct RankDevice {
  std::string node;  ///< the same text on the same node
  std::string bus;   ///< PCI address
  std::string uuid;  ///< of the device or MIG instance
};
/// Whether no two ranks have the same GPU, and if some do, which and what follows. MIG instances of
/// one GPU count as the same: NCCL does not connect them.
struct DeviceSharing {
  bool shared = false;
  std::string notice;
};
DeviceSharing device_sharing(std::vector<RankDevice> const& of_rank);

/// Of the cores a rank may use those that are near its device: all of them when none is, or when
/// somebody has chosen them already, that is, when @p allowed is not the whole of @p online.
std::vector<int> cores_to_use(std::vector<int> const& allowed, std::vector<int> const& online,
                              std::vector<int> const& near);

}  // namespace tessera::topology
