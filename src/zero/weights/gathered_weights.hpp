#pragma once
/// Weights of stage 3: a rank holds a shard of each unit and all-gathers units for leases.

#include <memory>

#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

std::unique_ptr<WeightStore> make_gathered_weights(StoreContext const& context);

}  // namespace tessera::zero::detail
