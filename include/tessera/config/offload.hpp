#pragma once
/// Where states are that the device's memory does not hold.

#include <cstdint>
#include <filesystem>

namespace tessera::config {

enum class OffloadDevice { none, cpu, nvme };
char const* name_of(OffloadDevice device);

/// zero_optimization.offload_optimizer and offload_param, with the block "aio".
struct Offload {
  OffloadDevice optimizer = OffloadDevice::none;
  OffloadDevice parameters = OffloadDevice::none;  ///< none or cpu
  std::filesystem::path nvme_path;                 ///< directory of the swap files
  std::int64_t buffer_count = 4;                   ///< tiles in memory
  std::int64_t tile_numel =
      4'194'304;  ///< most elements of a tile: sub_group_size where it is smaller
  std::int64_t block_size = 1'048'576;  ///< bytes of one read or write
  std::int64_t queue_depth = 8;         ///< reads at a time, and writes
  bool operator==(Offload const&) const = default;
};

}  // namespace tessera::config
