#pragma once
/// Where gradients are written, how they are summed over micro-steps and ranks, and where the sums
/// lie for the optimizer.

#include <cstddef>
#include <memory>

#include "detail/weight_store.hpp"

namespace tessera::zero::detail {

class GradientFlow {
 public:
  virtual ~GradientFlow() = default;

  /// @param first,last of the optimizer step
  struct MicroStep {
    bool first = true;
    bool last = true;
  };
  virtual void begin_micro_step(MicroStep micro) = 0;
  virtual memory::GradientLease lease(int unit) = 0;
  /// The unit's gradients of this micro-step are complete on the compute queue.
  virtual void complete(int unit) = 0;
  /// What the compute queue is given from now on finds the sums in place. @throws InternalError
  /// naming a unit without gradients
  virtual void finish() = 0;
  /// Blocks the host until no transfer is under way.
  virtual void settle() = 0;

  /// Sums of the region that this rank updates (Ownership::begin on), StageRules::gradient_dtype.
  virtual void* region(int unit) const = 0;
  virtual std::size_t gradient_bytes() const = 0;
  virtual std::size_t buffer_bytes() const = 0;
};

/// Stages 0, 1: whole gradients, reduced in the last micro-step while its backward goes on.
std::unique_ptr<GradientFlow> make_resident_gradients(StoreContext const& context,
                                                      StageRules const& rules,
                                                      std::vector<memory::UnitSpec> const& units);
/// Stages 2, 3: a buffer for the units in work, reduce-scattered into shards in every micro-step.
std::unique_ptr<GradientFlow> make_sharded_gradients(StoreContext const& context,
                                                     StageRules const& rules,
                                                     std::vector<memory::UnitSpec> const& units);

}  // namespace tessera::zero::detail
