#pragma once
/// One row per optimizer; make_spec() and make_optimizer() read the table.

#include <memory>

#include "tessera/optim/optimizer.hpp"

namespace tessera::optim::detail {

struct OptimizerEntry {
  OptimizerInfo info;
  /// Checks combinations of values, and names the states that they need.
  std::vector<StateSpec> (*states)(OptimizerSpec const& spec);
  std::unique_ptr<Optimizer> (*make)(OptimizerSpec const& spec);
};

}  // namespace tessera::optim::detail
