#pragma once
/// Groups of the ranks of a job: of a node, of a rail across nodes, of shards and of replicas.

#include <string>
#include <vector>

#include "tessera/topology/node_index.hpp"

namespace tessera::topology {

/// This rank's place in a group, for MPI_Comm_split.
struct RankGroup {
  int color = 0;     ///< ranks of equal color are a group; negative: this rank is in none
  int key = 0;       ///< order of the ranks in the group; equal keys: by rank
  int size = 0;      ///< ranks of the group, which a split checks; 0: not known
  std::string name;  ///< in errors, logs and flight records: "node 3"
};

/// The ranks of the node of @p rank. @param nodes of every rank
RankGroup node_group(std::vector<NodeIndex> const& nodes, int rank);
/// The ranks with the same position within their nodes: one rank per node.
RankGroup rail_group(std::vector<NodeIndex> const& nodes, int rank);
/// @p size consecutive ranks, which share one copy of the model states.
/// @throws ConfigError when @p size does not divide @p world_size
RankGroup shard_group(int world_size, int rank, int size);
/// The ranks that hold the same shard in each shard group of @p size ranks.
RankGroup replica_group(int world_size, int rank, int size);

/// "2,1": ranks 0 and 1 are on node 0, rank 2 is on node 1. For tests of several nodes on one
/// machine.
/// @throws ConfigError when the sizes are not positive or do not sum to @p world_size
std::vector<NodeIndex> nodes_of_sizes(std::string const& sizes, int world_size);

}  // namespace tessera::topology
