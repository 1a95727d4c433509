#pragma once
/// Ranks per node of a job whose nodes are alike.

#include <vector>

#include "tessera/topology/node_index.hpp"

namespace tessera::topology {

/// @param nodes of every rank  @return the ranks of each node, if all have the same number of
/// consecutive ranks; else 0
int uniform_node_size(std::vector<NodeIndex> const& nodes);

}  // namespace tessera::topology
