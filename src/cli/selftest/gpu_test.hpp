#pragma once
/// Tests the device of every rank and the links between them; the measuring part of `tessera
/// selftest --gpus`, and what it found, in words.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/topology/rank_groups.hpp"

namespace tessera::cli {

/// Measured rates of one rank's GPU, in bytes or operations per second.
struct GpuFigures {
  std::string host, model, bus;               ///< bus: PCI address
  double memory = 0.0;                        ///< copies inside the GPU, bytes read and written
  double products = 0.0;                      ///< bf16
  double to_device = 0.0, from_device = 0.0;  ///< pinned host memory
  std::int64_t tested_bytes = 0;              ///< bytes of memory that was written and read back
  std::int64_t wrong_bytes = 0;               ///< tested bytes that had other values
  std::int64_t wrong_products = 0;            ///< elements
};

/// Messages between two ranks, one at a time.
struct GpuLink {
  int from = 0, to = 0;
  bool in_node = true;
  double bandwidth = 0.0;  ///< bytes per second, the slower direction
  std::int64_t wrong_bytes = 0;
};

struct GpuReport {
  std::vector<GpuFigures> gpus = {};  ///< by rank
  std::vector<GpuLink> links = {};
  std::int64_t message_bytes = 0;                 ///< bytes of the collective operations
  double all_gather = 0.0, reduce_scatter = 0.0;  ///< bus bandwidth; 0: one rank
  bool compares_speeds = true;                    ///< false: simulated devices share the cores
};

std::string gpu_table(GpuReport const& report);

/// A line per fault: wrong results, and what is much slower than its like. A GPU is compared with
/// the median of its model (slow below 0.8 of it), a link with the median of those inside nodes or
/// between nodes (0.5: pairs of GPUs differ by the way between them).
std::vector<std::string> gpu_faults(GpuReport const& report);

struct GpuTest {
  memory::Queue& compute;  ///< compute queue of this rank's device
  comm::Collectives& comm;
  std::vector<topology::NodeIndex> nodes;  ///< nodes of every rank
  std::string host;                        ///< host of this rank
};

/// Pairs of ranks that exchange messages, in rounds: a rank is in one pair of a round at most.
/// The first rounds have the pairs inside nodes, for all nodes at the same time; the following ones
/// the ranks of one index in neighboring nodes, for all indices at the same time.
std::vector<std::vector<GpuLink>> link_rounds(std::vector<topology::NodeIndex> const& nodes);

/// Writes and reads back a quarter of the free memory (at most 16 GiB), multiplies and compares
/// with double precision, copies to and from the host; then messages between pairs of ranks, then
/// all-gather and reduce-scatter of all ranks. Takes seconds. Collective; rank 0 has the report.
/// @throws OutOfMemoryError, PeerLostError
std::optional<GpuReport> test_gpus(GpuTest const& where);

}  // namespace tessera::cli
