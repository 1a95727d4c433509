#pragma once
/// Bytes and seconds of a collective operation on nodes with several ranks.

#include <string_view>

#include "tessera/plan/machine_profile.hpp"

namespace tessera::plan {

/// Consecutive ranks are on one node.
struct Cluster {
  int nodes = 1;
  int ranks_per_node = 1;
  int ranks() const { return nodes * ranks_per_node; }
};

/// The nodes of the ranks of a group, as topology/rank_groups.hpp names it: consecutive ranks, or
/// one of each shard group for a replica group.
Cluster cluster_of(Cluster const& all, std::string_view group, int ranks);

/// Bytes that a rank sends, to ranks of its node and to other nodes.
struct WireBytes {
  double intra_node = 0.0, inter_node = 0.0;
  double total() const { return intra_node + inter_node; }
};
/// Of @p sent bytes per rank: in a ring in the order of the nodes one rank per node sends to the
/// next node, so that one part in the number of ranks per node leaves the node, where there are
/// several.
WireBytes wire_bytes(double sent, Cluster const& cluster);

/// One operation: its name, and the bytes of data of all ranks, S.
struct Collective {
  std::string_view name;
  double bytes = 0.0;
};

/// Seconds by the alpha-beta model, S bytes on N ranks. A ring of a reduce-scatter or an all-gather
/// has N-1 steps and passes (N-1)/N S bytes: of the steps, nodes-1 (with several nodes) have the
/// latency of the network between nodes and the others that within a node; the bytes pass the
/// slower of the link within a node and of all links of a node together. An all-reduce has twice
/// the steps and bytes, or takes a tree, whichever is faster: 2 (ranks per node - 1) steps within a
/// node, 2 log2(nodes) between nodes, at 0.92 of the ring's speed. NCCL, src/graph/tuning.cc.
double seconds_of(Collective const& operation, Cluster const& cluster,
                  MachineProfile const& machine);

}  // namespace tessera::plan
