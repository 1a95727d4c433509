#pragma once
/// Finds a node with a slow network by messages around a ring of the nodes.

#include <string>
#include <vector>

#include "tessera/comm/base/collectives.hpp"

namespace tessera::train {

/// The lowest rank of every node, ascending. @param hosts  name of the node of every rank
std::vector<int> lowest_rank_of_each(std::vector<std::string> const& hosts);

/// Seconds in which a mebibyte goes from one rank of @p ring to the next and back: element i is
/// between ranks i and i + 1 of the ring, the last one between its ends. The shortest of three.
/// Collective over all ranks of @p comm, and the same on all; takes as long as twelve such messages
/// over the slowest link.
/// @param ring  at least three ranks
std::vector<double> ring_round_trips(comm::Collectives& comm, std::vector<int> const& ring);

/// A node of which both links are slow: they take more than twice as long as the slowest one of the
/// fastest quarter of all links, and a millisecond longer.
struct SlowLinks {
  std::size_t place = 0;               ///< where the node is in the ring
  double seconds = 0.0, others = 0.0;  ///< time of its faster link, and of that other one
};
std::vector<SlowLinks> slow_links(std::vector<double> const& round_trips);

}  // namespace tessera::train
