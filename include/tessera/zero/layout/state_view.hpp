#pragma once
/// A rank's part of one persistent state, for checkpoints.

#include <string>
#include <vector>

#include "tessera/optim/optimizer_spec.hpp"

namespace tessera::zero {

/// The errors of quantized gradients with error feedback, a state next to those of the optimizer.
inline constexpr char const* gradient_error_name = "gradient_error";

/// fp32 values in partition order: PartitionPlan::of_extent(extent).extents(rank) says which
/// elements they are. A rank that holds a replica of the state shows only its own shard.
struct StateView {
  /// "fp32" for the master weights, else StateSpec::name or gradient_error_name.
  std::string name;
  /// Shard of unit u: of_extent(extent).unit(u).shard_numel values; null for a unit of other ranks.
  std::vector<float*> unit_shards;
  optim::Extent extent = optim::Extent::elementwise;
};

}  // namespace tessera::zero
