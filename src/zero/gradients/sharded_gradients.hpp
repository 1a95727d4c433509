#pragma once
/// Gradients of stages 2 and 3: staging buffers for units in flight, reduce-scattered into shards
/// in every micro-step.

#include <memory>
#include <vector>

#include "gradients/gradient_flow.hpp"

namespace tessera::zero::detail {

std::unique_ptr<GradientFlow> make_sharded_gradients(StoreContext const& context,
                                                     StageRules const& rules,
                                                     std::vector<memory::UnitSpec> const& units);

}  // namespace tessera::zero::detail
