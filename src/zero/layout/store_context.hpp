#pragma once
/// What the parts of an engine share: configuration, plan, groups of ranks and the compute queue.

#include <vector>

#include "layout/stage_rules.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::zero::detail {

/// Values that the engine shares with its parts.
struct StoreContext {
  EngineConfig const& config;
  PartitionPlan const& plan;
  Ownership ownership;
  comm::Collectives& comm;  ///< the ranks that share one copy of the model states
  memory::Queue& compute;
  /// Set with several copies: the ranks that have this rank's shard of each copy, and all ranks.
  comm::Collectives* replicas = nullptr;
  comm::Collectives* world = nullptr;
  comm::Collectives* secondary = nullptr;  ///< the ranks of secondary shards; null: there are none
  /// Groups of quantized gradients: the ranks of the node, and those of the rail; null: there is
  /// one.
  comm::Collectives* node = nullptr;
  comm::Collectives* rail = nullptr;
  /// The units of the plan, for weights that are copied in the dtype of products; null: none is.
  std::vector<memory::UnitSpec> const* units = nullptr;

  comm::Collectives& all_ranks() const { return world ? *world : comm; }
  /// Sums over the shards are formed over all ranks, so that every rank gets the same bits. Only
  /// one copy contributes.
  bool contributes() const { return !replicas || replicas->rank() == 0; }
};

}  // namespace tessera::zero::detail
