#pragma once
/// Where states are that the device's memory does not hold.

#include <cstdint>
#include <string>

#include "tessera/config/option_field.hpp"

namespace tessera::config {

/// The memory of offloaded states; none: they stay where the kernels compute.
enum class OffloadDevice { none, cpu, nvme };
template <>
inline constexpr std::array enum_names<OffloadDevice>{"none", "cpu", "nvme"};
constexpr char const* name_of(OffloadDevice device) {
  return enum_names<OffloadDevice>[static_cast<std::size_t>(device)];
}

/// zero_optimization.offload_optimizer and offload_param, with the block "aio".
struct Offload {
  OffloadDevice optimizer = OffloadDevice::none;
  OffloadDevice parameters = OffloadDevice::none;
  std::string nvme_path;          ///< drives of the optimizer: directories separated by ':'
  std::int64_t buffer_count = 4;  ///< tiles in memory
  std::int64_t tile_numel =
      4'194'304;  ///< most elements of a tile: sub_group_size where it is smaller
  std::string parameters_nvme_path;
  std::int64_t parameters_buffer_count = 5;           ///< shards of units in memory
  std::int64_t parameters_buffer_size = 100'000'000;  ///< most elements of such a shard
  std::int64_t max_in_cpu = 1'000'000'000;            ///< elements that memory keeps
  std::int64_t block_size = 1'048'576;                ///< bytes of one read or write
  std::int64_t queue_depth = 8;                       ///< reads in flight, and writes
  std::int64_t intra_op_parallelism = 1;              ///< threads of a transfer
  bool single_submit = false, overlap_events = true;
  bool pin_memory = true;             ///< host memory of what is copied between host and device
  bool parameters_pin_memory = true;  ///< pinned memory for the weights
  double ratio = 1.0;                 ///< part of the elements that the host updates
  std::int64_t delay_from = 0;        ///< first step whose update overlaps the next one; 0: none
  bool uses_nvme() const {
    return optimizer == OffloadDevice::nvme || parameters == OffloadDevice::nvme;
  }
  bool operator==(Offload const&) const = default;
};

}  // namespace tessera::config
