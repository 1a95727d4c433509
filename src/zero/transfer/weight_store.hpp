#pragma once
/// Where the working weights are, how a lease gets them and how an update changes them.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "layout/store_context.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/zero/layout/offload_config.hpp"

namespace tessera::zero::detail {

/// Longer than any kernel: a compute queue that takes this long is stuck.
inline constexpr std::chrono::minutes compute_deadline{30};

/// Bytes in host memory of the weights of a device, and the part of them that is pinned.
struct HostUse {
  std::size_t bytes = 0, pinned = 0;
};

/// The memory of working weights, and how they are transferred.
struct WeightReport {
  std::size_t weight_bytes = 0, buffer_bytes = 0;
  std::size_t swapped_bytes = 0;  ///< on a drive
  HostUse host = {};
  std::optional<SwapUse> swap = std::nullopt;
  std::optional<PrefetchReport> prefetch = std::nullopt;
};

/// Counts the values that weights have had, see memory::WeightLease::version().
class WeightVersion {
 public:
  void change() {
    static std::atomic<std::uint64_t> last{0};
    value_ = ++last;
  }
  /// Returns the versions of @p count parameters.
  std::vector<std::uint64_t> of(std::size_t count) const {
    return std::vector<std::uint64_t>(count, value_);
  }

 private:
  std::uint64_t value_ = 0;
};

/// The working weights that this rank updates: of each unit the region from Ownership::begin on.
class UpdateRegions {
 public:
  virtual ~UpdateRegions() = default;

  /// The region's address while it is open.
  virtual void* region(UnitIndex unit) const = 0;
  /// Later work of the compute queue finds the weights at region(), until
  /// WeightStore::all_gather_updated() or close_unchanged(). Regions are opened in the order of the
  /// units.
  virtual void open_region(UnitIndex unit) { (void)unit; }
  virtual void close_unchanged(UnitIndex unit) { (void)unit; }
  /// Ends transfers to and from a drive: region_outside_step() is valid until the next lease or
  /// update.
  virtual void finish_transfers() {}
  /// The region for accesses outside the step.
  virtual void* region_outside_step(UnitIndex unit) const { return region(unit); }
  /// The host updates the units before @p end: where the weights are not on the device, the regions
  /// of these units are in host memory.
  virtual void set_host_updates(UnitIndex end) { (void)end; }
};

class WeightStore : public UpdateRegions {
 public:
  /// Sets the units that the pass will acquire, in order: they are prefetched in this order.
  virtual void set_prefetch_order(std::vector<UnitIndex> acquisitions) = 0;
  virtual memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) = 0;

  /// Orders the compute queue's later work after every transfer in flight, so that it may change
  /// weights. All leases must have been released.
  virtual void prepare_update() = 0;
  /// The updates that follow are those of a step, of all units. The next pass is expected in the
  /// order of the last one: units that it reads first may be gathered while later ones are updated.
  virtual void begin_updates() {}
  /// Brings the updated weights of @p unit to the ranks that need them. The rank's own shard has
  /// its new values once the compute queue has executed this point.
  virtual void all_gather_updated(UnitIndex unit) = 0;
  /// Blocks the host until every transfer has completed.
  virtual void synchronize() = 0;

  virtual WeightReport report() const = 0;
};

}  // namespace tessera::zero::detail
