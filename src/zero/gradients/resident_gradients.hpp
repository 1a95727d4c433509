#pragma once
/// Gradients of stages 0 and 1: a rank holds them in full and reduces them during the last
/// micro-step, while its backward pass continues.

#include <memory>
#include <vector>

#include "gradients/gradient_flow.hpp"
#include "gradients/offloaded_gradients.hpp"

namespace tessera::zero::detail {

/// @param host takes the reduced regions in stage 1 with offload; outlives the flow
std::unique_ptr<GradientFlow> make_resident_gradients(StoreContext const& context,
                                                      StageRules const& rules,
                                                      std::vector<memory::UnitSpec> const& units,
                                                      HostGradients* host = nullptr);

}  // namespace tessera::zero::detail
