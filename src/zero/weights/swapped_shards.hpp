#pragma once
/// Shards of weights on a drive. They pass through a few buffers: unit u through buffer u modulo
/// their number, so that a unit's address never changes and neighbors in the order of a pass are in
/// different buffers. Rajbhandari et al., "ZeRO-Infinity", SC'21, section 5.1 and 6.2.

#include <memory>

#include "weights/shard_store.hpp"

namespace tessera::zero::detail {

/// The first units stay in memory up to WeightSwap::memory_numel elements.
/// @throws ConfigError when a shard does not fit WeightSwap::buffer_numel, IoError,
/// OutOfMemoryError
std::unique_ptr<ShardStore> make_swapped_shards(StoreContext const& context);

}  // namespace tessera::zero::detail
