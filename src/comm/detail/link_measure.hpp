#pragma once
/// Measures the links of a job: within nodes and between them.

#include "tessera/comm/two_level.hpp"

namespace tessera::comm::detail {

/// The slowest node's figures and those of the network, the same on all ranks. Takes a few
/// milliseconds. Collective.
/// @param leaders one rank per node; null on the others
Links measure_links(Collectives& world, Collectives& node, Collectives* leaders);

}  // namespace tessera::comm::detail
