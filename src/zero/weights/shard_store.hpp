#pragma once
/// This rank's shards of the weights of stage 3: in memory, in host memory for a device, or on a
/// drive.

#include <functional>
#include <memory>

#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class ShardStore : public UpdateRegions {
 public:
  struct Shard {
    memory::TensorView values;
    memory::Event ready;
    memory::Event begin;  ///< begin of the transfer to the memory of `values`
  };
  /// The shard of @p unit for an all-gather, which also waits for @p before.
  virtual Shard fetch(UnitIndex unit, memory::Event const& before) = 0;
  /// @p gathered is the end of the all-gather of the shard that fetch() gave.
  virtual void fetched(UnitIndex unit, memory::Event const& gathered) = 0;
  /// Starts bringing @p unit to memory before it is fetched.
  /// @return false when there is no room before earlier ones are fetched
  virtual bool read_ahead(UnitIndex unit) = 0;
  /// Units that are named from now on are read ahead in this order.
  virtual void begin_read_ahead() {}
  /// Shards that a drive reads ahead; 0: there is no drive.
  virtual std::size_t read_buffers() const { return 0; }
  /// Called for each read with the unit, the event before it and the event at its end.
  using ReadObserver = std::function<void(UnitIndex, memory::Event const&, memory::Event const&)>;
  virtual void observe_reads(ReadObserver) {}
  /// Whether shards come from a drive, or from host memory of a device.
  virtual bool is_streamed() const { return false; }

  /// The values in an open region have changed.
  virtual void close_changed(UnitIndex) {}

  virtual WeightReport report() const = 0;
};

/// Shards on a drive. They pass through a few buffers: unit u through buffer u modulo their number,
/// so that a unit's address never changes and neighbors in the order of a pass are in different
/// buffers. Rajbhandari et al., "ZeRO-Infinity", SC'21, section 5.1 and 6.2. The first units stay
/// in memory up to WeightSwap::memory_numel elements.
/// @throws ConfigError when a shard does not fit WeightSwap::buffer_numel, IoError,
/// OutOfMemoryError
std::unique_ptr<ShardStore> make_swapped_shards(StoreContext const& context);

/// This rank's shards in host memory, in the memory space of ShardedWeights::weight_offload.
std::unique_ptr<ShardStore> make_host_shards(StoreContext const& context);

/// Shards of a device's weights that stream to it before they are gathered; those that the device
/// updates return. Rajbhandari et al., "ZeRO-Infinity", SC'21, section 5.1.
/// @param host shards whose regions are in host memory
std::unique_ptr<ShardStore> make_streamed_shards(StoreContext const& context,
                                                 std::unique_ptr<ShardStore> host);

}  // namespace tessera::zero::detail
