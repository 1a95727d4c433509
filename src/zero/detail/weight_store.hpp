#pragma once
/// Where the working weights are and how a lease gets them.

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "detail/stage_rules.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::zero::detail {

/// Longer than any kernel: a compute queue that takes this long is stuck.
inline constexpr std::chrono::minutes compute_deadline{30};

class WeightStore {
 public:
  virtual ~WeightStore() = default;

  /// Sets the units that the pass will acquire, in order: they are prefetched in this order.
  virtual void set_prefetch_order(std::vector<UnitIndex> acquisitions) = 0;
  virtual memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) = 0;

  /// Working weights of the region that this rank updates (Ownership::begin on).
  virtual void* region(UnitIndex unit) const = 0;
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
};

/// Values that the engine shares with its parts.
struct StoreContext {
  EngineConfig const& config;
  PartitionPlan const& plan;
  Ownership ownership;
  comm::Collectives& comm;
  memory::Queue& compute;
};

}  // namespace tessera::zero::detail
