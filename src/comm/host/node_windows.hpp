#pragma once
/// Who carries which shard between nodes. A node with L ranks divides the shards of all N ranks
/// into windows of L consecutive ones; its p-th rank carries the p-th shard of each window. With
/// equal nodes of consecutive ranks a rank carries its own shard and those of its peers on the
/// other nodes. The last window is moved forward to end at rank N - 1, so that every window has L
/// shards.

#include <cstdint>
#include <vector>

#include "tessera/topology/rank_groups.hpp"

namespace tessera::comm::detail {

class NodeWindows {
 public:
  /// @param nodes of every rank
  explicit NodeWindows(std::vector<topology::NodeIndex> const& nodes);

  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  /// Position of the node of a rank, in the order of the nodes' lowest ranks.
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  std::vector<int> const& members(int node) const {
    return members_[static_cast<std::size_t>(node)];
  }
  int largest_node() const;

  int windows(int node) const;
  /// First shard of a window of a node.
  int start(int node, int window) const;
  /// The window in which a node carries a shard.
  int window_of(int node, int shard) const;
  /// The rank of a node that carries a shard.
  int carrier(int node, int shard) const;

 private:
  int size(int node) const { return static_cast<int>(members(node).size()); }
  std::vector<int> node_of_;
  std::vector<std::vector<int>> members_;
};

}  // namespace tessera::comm::detail
