#pragma once
/// The weights of a model on the ranks of a run, sharded as the stage says: all that evaluation and
/// generation need. Training adds gradients and optimizer states, see engine.hpp.

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/compose/mesh.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/zero/layout/engine_config.hpp"
#include "tessera/zero/layout/offload_config.hpp"
#include "tessera/zero/layout/parameter_subset.hpp"
#include "tessera/zero/layout/partition_plan.hpp"

namespace tessera::zero {

/// Memory of this rank by purpose in bytes, with the formula of the stage.
struct MemoryReport {
  std::size_t weights = 0, gradients = 0, master_weights = 0, optimizer_state = 0, buffers = 0;
  /// Formula of the first four, ZeRO paper section 3 and 5, without padding
  std::size_t formula = 0;
  std::size_t swapped = 0;          ///< on a drive, not in memory; the formula leaves it out
  std::size_t swapped_weights = 0;  ///< the part of `swapped` that is weights
  std::optional<SwapUse> swap;      ///< with swap files
  /// With offload from a device: bytes of all these in host memory, the parts of it that are pinned
  /// and weights, and the share of the elements that the host updates.
  std::size_t offloaded = 0, pinned = 0, offloaded_weights = 0;
  double offloaded_share = 0.0;
};

/// Weights for passes of evaluation and generation.
class Weights : public virtual memory::WeightProvider {
 public:
  /// The plan of the parameters that train, as trained_parameters() lists them, over the ranks of a
  /// shard group. This rank's partition is that of PartitionPlan::rank_of().
  virtual PartitionPlan const& plan() const = 0;
  /// The plan of the frozen parameters, as frozen_parameters() lists them. Only their working
  /// weights exist, at stage 3 partitioned.
  virtual PartitionPlan const& frozen_plan() const = 0;
  /// This rank's shard of the frozen parameters of @p unit. Blocks the host.
  virtual std::vector<float> frozen_shard(UnitIndex unit) const = 0;
  virtual EngineConfig const& config() const = 0;

  /// Sets every owned element, of frozen parameters too, through @p fill(unit, index of the
  /// parameter in the model's unit, first element, count, out), then updates the working weights on
  /// all ranks. Collective. Elements are fp32 values; 16-bit weights are rounded from them.
  using Fill = WeightFill;
  virtual void initialize(Fill const& fill) = 0;

  virtual MemoryReport memory() const = 0;
  /// With weights in host memory of a device or on a drive, once a pass has been measured. Of
  /// parameters that train and parameters that do not, those whose transfers take longer.
  virtual std::optional<PrefetchReport> prefetch() const { return {}; }
};

/// Weights for inference: no gradients, master weights and optimizer states. What @p config says of
/// those, OptimizerSwap and OptimizerOffload too, has no effect.
/// @param mesh of all ranks; outlives the weights. Ranks along axis shard share one copy.
std::unique_ptr<Weights> make_weights(EngineConfig const& config,
                                      std::vector<memory::UnitSpec> const& units, comm::Mesh& mesh,
                                      memory::Queue& compute);
/// Makes weights on the mesh of replicas and shard groups that @p config describes.
/// @param comm all ranks; outlives the weights
std::unique_ptr<Weights> make_weights(EngineConfig const& config,
                                      std::vector<memory::UnitSpec> const& units,
                                      comm::Collectives& comm, memory::Queue& compute);

}  // namespace tessera::zero
