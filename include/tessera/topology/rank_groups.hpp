#pragma once
/// Groups of the ranks of a job: of a node, of a rail across nodes, of shards and of replicas; and
/// numbers of nodes, as a type that cannot be mistaken for a rank.

#include <cstddef>
#include <string>
#include <vector>

namespace tessera::topology {

/// Index of a node of the job, in the order of the nodes' lowest ranks.
enum class NodeIndex : int {};

constexpr NodeIndex first_node{0};
constexpr std::size_t position(NodeIndex node) { return static_cast<std::size_t>(node); }

/// @param nodes of every rank  @return the ranks of each node, if all have the same number of
/// consecutive ranks; else 0
int uniform_node_size(std::vector<NodeIndex> const& nodes);

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
