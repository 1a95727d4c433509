#pragma once
/// The figures of the links of a job, given or measured: within nodes and between them.

#include <string>

#include "tessera/comm/compose/two_level.hpp"

namespace tessera::comm::detail {

/// The slowest node's figures and those of the network, the same on all ranks. Takes a few
/// milliseconds. Collective.
/// @param leaders one rank per node; null on the others
Links measure_links(Collectives& world, Collectives& node, Collectives* leaders);

/// Parses the text "INSIDE_US,INSIDE_GB_PER_S,BETWEEN_US,BETWEEN_GB_PER_S". @throws ConfigError
Links links_from_text(std::string const& text);

/// Returns the links of the variable TESSERA_LINKS of rank 0, else measured ones. Collective.
/// @throws ConfigError on all ranks
Links links_of_job(Collectives& world, Collectives& node, Collectives* leaders);

}  // namespace tessera::comm::detail
