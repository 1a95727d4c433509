#pragma once
/// Gradients of a step: where kernels write them, how they are summed over micro-steps and ranks,
/// and where the optimizer finds the sums.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "layout/stage_rules.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class HostGradients;
class QuantizedReduce;

class GradientFlow {
 public:
  virtual ~GradientFlow() = default;

  /// Describes a micro-step of the optimizer step.
  struct MicroStep {
    bool first = true;
    bool last = true;
    int index = 0;
    bool is_empty = false;  ///< this rank's gradients do not count
    bool reduces = true;    ///< false: each rank keeps its own sums, at stage 0
    std::int64_t step = 1;  ///< step of the optimizer, the next one that is not skipped
  };
  virtual void begin_micro_step(MicroStep micro) = 0;
  virtual memory::GradientLease lease(UnitIndex unit) = 0;
  /// The unit's gradients of this micro-step are complete on the compute queue.
  virtual void complete(UnitIndex unit) = 0;
  /// Work that is enqueued on the compute queue from now on reads the complete sums.
  /// @throws InternalError naming a unit without gradients
  virtual void finish() = 0;
  /// Blocks the host until every transfer has completed.
  virtual void synchronize() = 0;

  /// Sums of the region that this rank updates (Ownership::begin on), StageRules::gradient_dtype.
  virtual void* region(UnitIndex unit) const = 0;
  virtual std::size_t gradient_bytes() const = 0;
  virtual std::size_t buffer_bytes() const = 0;
  /// The reduction of quantized gradients; null: gradients travel as values.
  virtual QuantizedReduce* quantized() { return nullptr; }
};

/// Gradients of stages 0 and 1: a rank holds them in full and reduces them during the last
/// micro-step, while its backward pass continues.
/// @param host takes the reduced regions in stage 1 with offload; outlives the flow
std::unique_ptr<GradientFlow> make_resident_gradients(StoreContext const& context,
                                                      StageRules const& rules,
                                                      std::vector<memory::UnitSpec> const& units,
                                                      HostGradients* host = nullptr);

/// Gradients of stages 2 and 3: staging buffers for units in flight, reduce-scattered into shards
/// in every micro-step.
std::unique_ptr<GradientFlow> make_sharded_gradients(StoreContext const& context,
                                                     StageRules const& rules,
                                                     std::vector<memory::UnitSpec> const& units);

}  // namespace tessera::zero::detail
