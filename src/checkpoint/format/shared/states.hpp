#pragma once
/// The training states that a checkpoint is written from.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/zero/layout/partition_plan.hpp"
#include "tessera/zero/layout/state_view.hpp"

namespace tessera::checkpoint {

using StateViews = std::vector<zero::StateView>;

/// States of one shape: all element-wise states, or one state that keeps fewer values.
struct StateLayer {
  optim::Extent extent = optim::Extent::elementwise;
  std::vector<std::string> states;
  bool operator==(StateLayer const&) const = default;
};
/// The first layer is that of the element-wise states.
using StateLayers = std::vector<StateLayer>;

/// @throws InternalError when an element-wise state follows another one
StateLayers layers_of(StateViews const& states);
/// Returns the layers of the master weights and the states of @p optimizer.
StateLayers layers_of(optim::OptimizerSpec const& optimizer);
/// The partition of the states of each layer, where @p plan is that of the parameters.
std::vector<zero::PartitionPlan> plans_of(zero::PartitionPlan const& plan,
                                          StateLayers const& layers);

/// States whose elements are made as they are written; memory does not grow with the model.
struct StreamedStates {
  std::vector<std::string> names;  ///< "fp32", "exp_avg", "exp_avg_sq"
  /// Writes elements [first, first + numel) of an extent; extents come in the plan's order, state
  /// after state.
  std::function<void(std::string const& state, zero::ShardExtent const& extent, std::int64_t first,
                     std::int64_t numel, float* out)>
      read;
};

}  // namespace tessera::checkpoint
