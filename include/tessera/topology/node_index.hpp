#pragma once
/// Nodes of a job: their numbers, as a type that cannot be mistaken for a rank, and ranks per node.

#include <cstddef>
#include <vector>

namespace tessera::topology {

/// Index of a node of the job, in the order of the nodes' lowest ranks.
enum class NodeIndex : int {};

constexpr NodeIndex first_node{0};
constexpr std::size_t position(NodeIndex node) { return static_cast<std::size_t>(node); }

/// @param nodes of every rank  @return the ranks of each node, if all have the same number of
/// consecutive ranks; else 0
int uniform_node_size(std::vector<NodeIndex> const& nodes);

}  // namespace tessera::topology
