#pragma once
/// The training states that a checkpoint is written from.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/zero/partition_plan.hpp"
#include "tessera/zero/state_view.hpp"

namespace tessera::checkpoint {

using StateViews = std::vector<zero::StateView>;

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
