#pragma once
/// Stores of working weights by ZeRO stage.

#include <memory>

#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

/// Weights of stages 0 to 2: every rank holds all units in full.
std::unique_ptr<WeightStore> make_resident_weights(StoreContext const& context);

/// Weights of stage 3: a rank holds a shard of each unit and all-gathers units for leases.
std::unique_ptr<WeightStore> make_gathered_weights(StoreContext const& context);

}  // namespace tessera::zero::detail
