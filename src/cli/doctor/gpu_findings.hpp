#pragma once
/// Problems of a node's GPUs and costly settings, one finding per line, for `tessera doctor
/// --gpus`.

#include <string>
#include <vector>

#include "tessera/topology/gpu_inventory.hpp"
#include "tessera/topology/launcher.hpp"

namespace tessera::cli {

/// "13.0" for 13000; "none" for 0.
std::string runtime_version_text(int version);

/// Versions of the software next to the driver; empty or 0: not installed.
struct GpuSoftware {
  int runtime = 0;   ///< CUDA runtime of this build, 13000; 0: a build without GPU support
  std::string nccl;  ///< "2.28.9"
};
/// Errors and settings that cost speed: no driver, a driver older than the runtime, ECC errors, row
/// remapping, MIG, NVLinks without a path.
std::vector<std::string> gpu_findings(topology::GpuInventory const& inventory,
                                      GpuSoftware const& software);

/// The NCCL variables that are set, with the cost of those that disable a feature or are for
/// debugging. "NCCL User Guide", "Environment Variables".
std::vector<std::string> nccl_findings(topology::Environment const& environment);

/// Xid errors in the kernel log: "GPU 0000:17:00: Xid 79, the GPU has fallen off the bus".
/// "NVIDIA GPU Debug Guidelines", "XID Errors".
std::vector<std::string> xid_findings(std::string const& kernel_log);

}  // namespace tessera::cli
