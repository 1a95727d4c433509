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

  /// Units that will be acquired from now on, in order.
  virtual void announce(std::vector<int> acquisitions) = 0;
  virtual memory::WeightLease acquire(int unit, memory::Queue& compute) = 0;

  /// Working weights of the region that this rank updates (Ownership::begin on).
  virtual void* region(int unit) const = 0;
  /// The rank's own shard of @p unit has new values after what is on the compute queue: brings them
  /// to where others need them.
  virtual void publish(int unit) = 0;
  /// Lets the compute queue's later work change weights: orders it after every transfer under way.
  /// No lease may be out.
  virtual void prepare_update() = 0;
  /// Blocks the host until no transfer is under way.
  virtual void settle() = 0;

  virtual std::size_t weight_bytes() const = 0;
  virtual std::size_t buffer_bytes() const = 0;
};

/// What the stores share with the engine.
struct StoreContext {
  EngineConfig const& config;
  PartitionPlan const& plan;
  Ownership ownership;
  comm::Collectives& comm;
  memory::Queue& compute;
};

/// Stages 0-2: all units whole.
std::unique_ptr<WeightStore> make_resident_weights(StoreContext const& context);
/// Stage 3: a shard of each unit, gathered for leases.
std::unique_ptr<WeightStore> make_gathered_weights(StoreContext const& context);

}  // namespace tessera::zero::detail
