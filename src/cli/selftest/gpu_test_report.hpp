#pragma once
/// What `tessera selftest --gpus` found, in words.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cli {

/// Of one rank's GPU. Rates in bytes or operations per second.
struct GpuFigures {
  std::string host, model, bus;               ///< bus: PCI address
  double memory = 0.0;                        ///< copies inside the GPU, bytes read and written
  double products = 0.0;                      ///< bf16
  double to_device = 0.0, from_device = 0.0;  ///< pinned host memory
  std::int64_t tested_bytes = 0;              ///< of memory that was written and read back
  std::int64_t wrong_bytes = 0;               ///< of those
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
  std::int64_t message_bytes = 0;                 ///< of the collective operations
  double all_gather = 0.0, reduce_scatter = 0.0;  ///< bus bandwidth; 0: one rank
  bool compares_speeds = true;                    ///< false: simulated devices share the cores
};

std::string gpu_table(GpuReport const& report);

/// A line per fault: wrong results, and what is much slower than its like. A GPU is compared with
/// the median of its model (slow below 0.8 of it), a link with the median of those inside nodes or
/// between nodes (0.5: pairs of GPUs differ by the way between them).
std::vector<std::string> gpu_faults(GpuReport const& report);

}  // namespace tessera::cli
