#pragma once
/// This rank's shards of the weights of stage 3: in memory, in host memory for a device, or on a
/// drive.

#include <functional>

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

}  // namespace tessera::zero::detail
