#pragma once
/// Weights of stages 0 to 2: every rank holds all units in full.

#include <memory>

#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

std::unique_ptr<WeightStore> make_resident_weights(StoreContext const& context);

}  // namespace tessera::zero::detail
