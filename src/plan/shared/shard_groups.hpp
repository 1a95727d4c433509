#pragma once
/// Groups of ranks that share one copy of the states of stage 3 (mics_shard_size, HSDP): how many
/// ranks they should have.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/plan/planner.hpp"

namespace tessera::plan {

/// Sizes that a plan weighs: the ranks of a node and of 2, 4, 8 ... nodes, as far as they divide
/// all ranks; on one node 2, 4, 8 ... ranks. Smallest first, without all ranks.
std::vector<std::int64_t> shard_group_sizes(Cluster const& cluster);

/// Plans @p choice at stage 3 in groups of each size, and last with one group of all ranks, where
/// shard_group is 0. Sizes that the run refuses are left out.
std::vector<PlannedChoice> weigh_shard_groups(Planner& planner, Choice choice);

/// The fastest that fits, by is_better(); null: none does.
PlannedChoice const* best_shard_group(std::vector<PlannedChoice> const& groups);

/// "Shard groups (mics_shard_size) on 64 ranks: 8: 1.2 s, 60 GiB per rank; ..."
std::string shard_groups_text(Planner const& planner, std::vector<PlannedChoice> const& groups);
ConfigTree shard_groups_json(Planner const& planner, std::vector<PlannedChoice> const& groups);

}  // namespace tessera::plan
