#pragma once
/// This rank's shards of the weights of stage 3: in memory, in host memory for a device, or on a
/// drive.

#include <functional>
#include <optional>

#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class ShardStore {
 public:
  virtual ~ShardStore() = default;

  struct Shard {
    memory::TensorView values;
    memory::Event ready;
    memory::Event begin;  ///< of the transfer to the memory of `values`
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

  /// As those of WeightStore.
  virtual void* region(UnitIndex unit) const = 0;
  virtual void open_region(UnitIndex) {}
  virtual void close_unchanged(UnitIndex) {}
  virtual void close_changed(UnitIndex) {}
  virtual void settle() {}
  virtual void* settled_region(UnitIndex unit) const { return region(unit); }

  virtual Dtype dtype() const = 0;
  virtual std::size_t weight_bytes() const = 0;
  /// Whether shards come from a drive, or from host memory of a device.
  virtual bool is_streamed() const { return false; }
  virtual std::size_t buffer_bytes() const { return 0; }
  virtual std::size_t swapped_bytes() const { return 0; }
  virtual HostUse host_use() const { return {}; }
  virtual std::optional<SwapUse> swap_use() const { return {}; }
  virtual void set_host_updates(UnitIndex) {}
};

}  // namespace tessera::zero::detail
