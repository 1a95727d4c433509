#pragma once
/// What a plan knows of a machine: memory, speed of products, links and disks. Measured by `tessera
/// selftest --profile`, or written by hand from a vendor's figures.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::plan {

/// Latency and bandwidth of one rank's link, in one direction.
struct Link {
  double latency = 0.0;    ///< seconds
  double bandwidth = 0.0;  ///< bytes per second
  bool operator==(Link const&) const = default;
};

/// A protocol of NCCL for small operations: less latency per step, and a part of the bandwidth.
struct Protocol {
  double intra_latency = 0.0, inter_latency = 0.0;  ///< seconds per step of a ring
  double bandwidth = 1.0;                           ///< part of the links' bandwidth
  bool operator==(Protocol const&) const = default;
};

/// The speed of a product of matrices, op(a) [m, k] by op(b) [k, n].
struct ProductSpeed {
  Dtype dtype = Dtype::fp32;
  std::int64_t m = 1, n = 1, k = 1;
  double flops = 0.0;  ///< floating-point operations per second
  bool operator==(ProductSpeed const&) const = default;
};

/// Figures of a machine, per rank where nothing else is said. Zero: unknown.
struct MachineProfile {
  std::string name, source;  ///< source: where the figures are from, one line
  bool measured = false;
  int ranks_per_node = 1;
  bool has_device = false;
  std::int64_t device_memory = 0, host_memory = 0, nvme = 0;
  /// Bytes that a process needs besides what the memory tracker counts, where the model computes.
  std::int64_t reserved_memory = 0;

  std::map<Dtype, double> peak;        ///< peak rate of products, in FLOP/s
  std::vector<ProductSpeed> products;  ///< by shape; empty: product_efficiency holds for all
  double product_efficiency = 1.0;     ///< share of the peak
  double attention_efficiency = 1.0;   ///< share of the peak
  /// Time of products and attention in a pass, divided by the time of the pass: the rest are the
  /// kernels between them.
  double pass_efficiency = 1.0;

  /// Times that the operands and results of products pass the memory in those kernels.
  double pass_traffic = 0.0;
  /// Part of a rank's compute speed that a collective takes while it runs: cores of a host, or
  /// multiprocessors of a device.
  double collective_share = 0.0;

  double memory_bandwidth = 0.0;               ///< that an update reaches where the model computes
  double host_memory_bandwidth = 0.0;          ///< that an update by the host reaches
  Link host_link;                              ///< between device and host
  Link intra_node, inter_node;                 ///< that a ring of all ranks reaches
  std::vector<Protocol> protocols;             ///< besides that of intra_node and inter_node
  double drive_read = 0.0, drive_write = 0.0;  ///< bandwidth of local drives
  double save_bandwidth = 0.0;      ///< bandwidth of checkpoints, all ranks of a node together
  double node_failure_hours = 0.0;  ///< mean time between failures of a node

  /// Returns the speed of a product of that shape by the nearest measured shape or from the peak.
  double product_speed(Dtype dtype, std::int64_t m, std::int64_t n, std::int64_t k) const;
  double attention_speed(Dtype dtype) const;
  bool operator==(MachineProfile const&) const = default;
};

/// @param source names the document in messages
/// @throws ConfigError for unknown keys, missing ones and values out of range
MachineProfile read_profile(ConfigTree const& document, std::string const& source);
ConfigTree to_json(MachineProfile const& profile);

}  // namespace tessera::plan
