#pragma once
/// Groups of ranks that depend on the nodes of a job, which a resolved configuration does not know.

#include "tessera/config/arguments.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/topology/mesh.hpp"

namespace tessera::config {

/// Whether mics_hierarchical_params_gather asks for gathers in two levels: --collectives two-level.
/// @throws ConfigError when --collectives contradicts it
bool wants_two_levels(TrainingArguments const& arguments);

/// Completes @p config for a job: hybrid_shard's groups are the ranks of a node.
/// @param ranks_per_node consecutive ranks; 0: nodes differ, or their ranks are not consecutive
/// @throws ConfigError by DeepSpeed's rules for the sizes of groups
void place_on_nodes(ResolvedConfig& config, int ranks_per_node);

/// The ranks of a run as a mesh: copies of the model states, and the ranks that share a copy. With
/// hybrid_shard it is that of the job after place_on_nodes().
/// @throws ConfigError when the size of shard groups does not divide the number of ranks
topology::Mesh mesh_of(ResolvedConfig const& config);

/// @throws ConfigError where the nodes of a job are no part of a binary tree over the ranks, which
/// --reproducible world needs
void check_nodes_of_tree(ResolvedConfig const& config, int ranks_per_node);

}  // namespace tessera::config
