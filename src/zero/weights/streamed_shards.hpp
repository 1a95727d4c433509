#pragma once
/// Shards of the weights of a device, in host memory or on a drive. They stream to the device
/// before they are gathered, and those that the device updates return. Rajbhandari et al.,
/// "ZeRO-Infinity", SC'21, section 5.1.

#include <memory>

#include "weights/shard_store.hpp"

namespace tessera::zero::detail {

/// This rank's shards in host memory, in the memory space of ShardedWeights::weight_offload.
std::unique_ptr<ShardStore> make_host_shards(StoreContext const& context);

/// @param host shards whose regions are in host memory
std::unique_ptr<ShardStore> make_streamed_shards(StoreContext const& context,
                                                 std::unique_ptr<ShardStore> host);

}  // namespace tessera::zero::detail
