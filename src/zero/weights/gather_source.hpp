#pragma once
/// Where gathered units come from: secondary shards, or all ranks' shards, quantized or as they
/// are.

#include <memory>

#include "transfer/buffer_pool.hpp"
#include "weights/shard_store.hpp"

namespace tessera::zero::detail {

/// Sources form a chain: one that does not have a unit passes it on to the next.
class GatherSource {
 public:
  virtual ~GatherSource() = default;

  struct Gather {
    comm::Pending arriving;  ///< the last piece of the all-gather
    memory::Event begin;     ///< the transfer of the shard starts after this event
  };
  /// Starts to gather @p unit to @p out [padded unit], which is not complete before finish().
  virtual Gather start(UnitIndex unit, BufferPool::Entry const& out) = 0;
  /// Completes the gather on the compute queue. @pre the compute queue waits for its arrival
  virtual void finish(UnitIndex, BufferPool::Entry const&) {}
  /// @p unit is dropped, finished or not. @pre the compute queue waits for its arrival
  virtual void drop(UnitIndex) {}
  /// Whether a gather of @p unit reads this rank's shard in the shard store.
  virtual bool reads_shard(UnitIndex) const { return true; }
  /// The weights of @p unit change.
  virtual void forget(UnitIndex) {}
  /// Adds the bytes of this source and of the next ones.
  virtual void add_bytes(WeightReport&) const {}
};

/// The chain that the configuration asks for. Collective, as it allocates.
/// @param shards outlives the chain
std::unique_ptr<GatherSource> make_gather_source(StoreContext const& context, ShardStore& shards);

}  // namespace tessera::zero::detail
