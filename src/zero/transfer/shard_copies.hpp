#pragma once
/// fp32 copies in host memory of shards that are in 16 bits or on a device.

#include <vector>

#include "tessera/memory/memory_tracker.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::zero::detail {

enum class ShardDirection { to_host, to_state };

struct ShardCopy {
  float* host;  ///< fp32, as many elements as the shard
  memory::TensorView shard;
  memory::MemorySpace space;  ///< memory space of the shard
};

/// Blocks the host. All shards have one dtype.
/// @param queue for memory of a device; earlier work of it writes the shards
void copy_shards(memory::Queue& queue, std::vector<ShardCopy> const& copies,
                 ShardDirection direction);

}  // namespace tessera::zero::detail
