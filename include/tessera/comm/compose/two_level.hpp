#pragma once
/// Collectives of ranks on several nodes in two levels: the ranks of a node through shared memory,
/// and one message per node and shard across the network.

#include <memory>
#include <optional>
#include <vector>

#include "tessera/comm/base/collectives.hpp"

namespace tessera::comm {

/// automatic: by the size of each operation and the figures of the links.
enum class Levels { automatic, flat, two };

/// Measured figures of one level: the time of a small operation, and bytes per second of a large
/// one per node.
struct LinkFigures {
  double latency_seconds = 0.0;
  double bytes_per_second = 0.0;
};
/// The links of a rank: inside its node, and to other nodes.
struct Links {
  LinkFigures node, network;
};

/// Which operations have two levels.
struct TwoLevelOptions {
  Levels levels = Levels::automatic;
  std::optional<Links> links;  ///< measured when absent and needed
};

/// True when two levels are predicted to be faster for an operation on @p bytes of all ranks.
/// @param nodes of the group  @param ranks_per_node of the largest node
bool prefers_two_levels(Links const& links, int nodes, int ranks_per_node, std::size_t bytes);

/// @p world in two levels where it has several nodes and one of them has several ranks, else as it
/// is. reduce_scatter, all_gather, all_reduce (sums) and broadcast have two levels; the others are
/// those of @p world. Results are equal bit for bit. The groups "node 3" and "node leaders" are
/// split from @p world. Collective.
/// @param nodes of every rank of @p world
std::unique_ptr<Collectives> make_two_level(std::unique_ptr<Collectives> world,
                                            std::vector<topology::NodeIndex> nodes,
                                            TwoLevelOptions options);

}  // namespace tessera::comm
