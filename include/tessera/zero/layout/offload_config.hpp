#pragma once
/// Where an engine keeps states and weights that are not in the memory of its kernels, and how far
/// ahead it transfers them.

#include <cstdint>

#include "tessera/memory/buffer.hpp"
#include "tessera/memory/swap_options.hpp"

namespace tessera::zero {

/// Master weights and optimizer states on a drive (ZeRO-Infinity): tiles of them stream through
/// buffers in memory while they are updated.
struct OptimizerSwap {
  memory::SwapOptions transfers;
  std::int64_t tile_numel = 4'194'304;  ///< most elements of a tile
  int buffer_count = 4;                 ///< tiles in memory
};

/// What the swap files of a run really use.
struct SwapUse {
  memory::SwapMethod method;
  bool is_direct = true;  ///< all of them bypass the page cache
};

/// Weights of stage 3 on a drive (ZeRO-Infinity): a rank's shards of units stream through buffers
/// in memory before they are gathered, and while they are updated.
struct WeightSwap {
  memory::SwapOptions transfers;
  int buffer_count = 5;                       ///< shards in memory
  std::int64_t buffer_numel = 100'000'000;    ///< most elements of a shard
  std::int64_t memory_numel = 1'000'000'000;  ///< elements of the first units that stay in memory
  /// Memory space of the shards of a model on a device: pinned or host.
  memory::MemorySpace space = memory::MemorySpace::pinned;
};

/// Weights of stage 3 of a device in host memory: a rank's shards of units stream to the device
/// before they are gathered. No effect where the model computes on the host.
struct WeightOffload {
  memory::MemorySpace space = memory::MemorySpace::pinned;  ///< pinned or host
};

/// Master weights and optimizer states in host memory, updated by the host's cores while the model
/// computes on a device (ZeRO-Offload): gradients leave the device as they are reduced, and tiles
/// of updated weights return. Ren et al., "ZeRO-Offload: Democratizing Billion-Scale Model
/// Training", USENIX ATC'21. No effect where the model computes on the host.
struct OptimizerOffload {
  std::int64_t tile_numel = 4'194'304;  ///< most elements of a tile
  int buffer_count = 4;                 ///< tiles that are updated or return at a time
  /// Memory space of gradients and returning weights: pinned or host.
  memory::MemorySpace space = memory::MemorySpace::pinned;
  double ratio = 1.0;  ///< least part of the elements that the host updates (Twin-Flow)
  /// From this optimizer step on the host updates while the next step computes, whose weights lack
  /// that update (section 5.2 of the paper). state() and passes of evaluation complete it first.
  /// 0: never; without optimizer_swap and ratio, and not for optimizers of complete parameters.
  std::int64_t delay_from = 0;
};

/// How far ahead of the computation the weights of stage 3 are transferred, where they are in host
/// memory or on a drive: chosen from the times of one pass, within the limits of the buffers. The
/// depths are the same on all ranks, the times are those of this rank.
struct PrefetchReport {
  std::int64_t units = 0, max_units = 0;            ///< copied and gathered ahead
  std::int64_t read_units = 0, max_read_units = 0;  ///< read ahead from a drive; 0: there is none
  double transfer_seconds = 0.0;  ///< seconds of copies and gathers, one after the other
  double read_seconds = 0.0;      ///< seconds of reads
  double compute_seconds = 0.0;   ///< between the transfers that it waited for
  double waiting_seconds = 0.0;   ///< that no depth within the limits hides
  double seconds() const { return transfer_seconds + read_seconds; }
  bool operator==(PrefetchReport const&) const = default;
};

}  // namespace tessera::zero
