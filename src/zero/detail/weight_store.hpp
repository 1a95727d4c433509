#pragma once
/// Where the working weights are and how a lease gets them.

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "detail/stage_rules.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::zero::detail {

/// Longer than any kernel: a compute queue that takes this long is stuck.
inline constexpr std::chrono::minutes compute_deadline{30};

/// Bytes in host memory of the weights of a device, and the part of them that is pinned.
struct HostUse {
  std::size_t bytes = 0, pinned = 0;
};

class WeightStore {
 public:
  virtual ~WeightStore() = default;

  /// Sets the units that the pass will acquire, in order: they are prefetched in this order.
  virtual void set_prefetch_order(std::vector<UnitIndex> acquisitions) = 0;
  virtual memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) = 0;

  /// As ParamProvider::announce_lookup(): the pass that begins next. Collective.
  virtual void announce_lookup(UnitIndex unit, std::size_t parameter, memory::RowList rows) {
    (void)unit, (void)parameter, (void)rows;
  }
  /// As Engine::announce_next_lookup(). Collective.
  virtual void announce_next_lookup(UnitIndex unit, std::size_t parameter, memory::RowList rows) {
    (void)unit, (void)parameter, (void)rows;
  }
  /// A training pass in the order of the last one will follow the next update. On all ranks or on
  /// none.
  virtual void expect_pass() {}
  /// The updates that follow are those of a step, of all units: those that an expected pass reads
  /// first may be gathered while later ones are updated. @return only some rows of the first unit
  /// are gathered for the lookup, so it may follow the second. Collective.
  virtual bool begin_updates() { return false; }
  /// As Engine::lookup_rows().
  virtual std::optional<std::int64_t> lookup_rows() const { return {}; }

  /// Working weights of the region that this rank updates (Ownership::begin on): its address while
  /// the region is open.
  virtual void* region(UnitIndex unit) const = 0;
  /// Later work of the compute queue finds the weights at region(), until all_gather_updated() or
  /// close_unchanged(). Regions are opened in the order of the units.
  virtual void open_region(UnitIndex unit) { (void)unit; }
  virtual void close_unchanged(UnitIndex unit) { (void)unit; }
  /// Ends transfers to and from a drive: settled_region() is valid until the next lease or update.
  virtual void settle() {}
  /// The region for accesses outside the step.
  virtual void* settled_region(UnitIndex unit) const { return region(unit); }
  /// Brings the updated weights of @p unit to the ranks that need them. The rank's own shard has
  /// its new values once the compute queue has executed this point.
  virtual void all_gather_updated(UnitIndex unit) = 0;
  /// Orders the compute queue's later work after every transfer in flight, so that it may change
  /// weights. All leases must have been released.
  virtual void prepare_update() = 0;
  /// Blocks the host until every transfer has completed.
  virtual void synchronize() = 0;

  virtual std::size_t weight_bytes() const = 0;
  virtual std::size_t buffer_bytes() const = 0;
  virtual std::size_t swapped_bytes() const { return 0; }  ///< on a drive
  virtual HostUse host_use() const { return {}; }
  virtual std::optional<SwapUse> swap_use() const { return {}; }
  virtual std::optional<PrefetchReport> prefetch_report() const { return {}; }
  /// The host updates the units before @p end: where the weights are not on the device, the regions
  /// of these units are in host memory.
  virtual void set_host_updates(UnitIndex end) { (void)end; }
};

/// Values that the engine shares with its parts.
struct StoreContext {
  EngineConfig const& config;
  PartitionPlan const& plan;
  Ownership ownership;
  comm::Collectives& comm;  ///< the ranks that share one copy of the model states
  memory::Queue& compute;
  /// With several copies: the ranks that have this rank's shard of each, and all ranks.
  comm::Collectives* replicas = nullptr;
  comm::Collectives* world = nullptr;
  comm::Collectives* secondary = nullptr;  ///< the ranks of secondary shards; null: there are none
  /// Of quantized gradients: the ranks of the node, and those of the rail; null: there is one.
  comm::Collectives* node = nullptr;
  comm::Collectives* rail = nullptr;

  comm::Collectives& all_ranks() const { return world ? *world : comm; }
  /// Sums over the shards are formed over all ranks, so that every rank gets the same bits. Only
  /// one copy contributes.
  bool contributes() const { return !replicas || replicas->rank() == 0; }
};

}  // namespace tessera::zero::detail
