#pragma once
/// The variables that steer MPI, UCX and libfabric, and what is wrong with them on this node, for
/// `tessera doctor`.

#include <set>
#include <string>

#include "doctor/node_report.hpp"

namespace tessera::cli {

/// Names of the network devices of a node.
struct NetworkDevices {
  std::set<std::string> interfaces;  ///< /sys/class/net: "eth0"
  std::set<std::string> adapters;    ///< /sys/class/infiniband: "mlx5_0"
};
NetworkDevices network_devices();

/// Every variable of MPI, UCX, libfabric and NCCL that is set; problems: those that turn a fast
/// path off, and devices that this node does not have.
NodeSection network_section(topology::Environment const& environment,
                            NetworkDevices const& devices);

}  // namespace tessera::cli
