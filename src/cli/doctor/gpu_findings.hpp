#pragma once
/// Problems of a node's GPUs and costly settings, one finding per line, for `tessera doctor
/// --gpus`.

#include <string>
#include <vector>

#include "tessera/topology/gpu_inventory.hpp"
#include "tessera/topology/launcher.hpp"

namespace tessera::cli {

/// Versions of what is installed beside the driver; empty: not there.
struct GpuSoftware {
  int runtime = 0;   ///< CUDA runtime of this build, 13000; 0: built without
  std::string nccl;  ///< "2.28.9"
};
/// What is wrong or costs speed, one line each: no driver, driver older than the runtime, ECC and
/// row remapping, MIG, no NVLink.
std::vector<std::string> gpu_findings(topology::GpuInventory const& inventory,
                                      GpuSoftware const& software);

/// NCCL's variables that are set; those that switch something off or belong to debugging say what
/// that costs. "NCCL" user guide, "Environment Variables".
std::vector<std::string> nccl_findings(topology::Environment const& environment);

/// Xid errors in the kernel's log: "GPU 0000:17:00: Xid 79, the GPU has fallen off the bus".
/// "NVIDIA GPU Debug Guidelines", "XID Errors".
std::vector<std::string> xid_findings(std::string const& kernel_log);

}  // namespace tessera::cli
