#pragma once
/// `tessera run`: the nodes of the allocation that it uses.

#include <string>
#include <vector>

#include "launch/launch_plan.hpp"
#include "tessera/topology/launcher.hpp"

namespace tessera::cli {

/// The nodes of a Slurm job, with as many slots as it has tasks per node.
/// @param hostnames  the output of `scontrol show hostnames`
/// @param per_node  slots per node; 0: as the environment says, else 1
std::vector<HostSlots> nodes_of_job(std::string const& hostnames,
                                    topology::Environment const& environment, int per_node);

/// The nodes in the text of a PBS_NODEFILE, which has one line per rank. @throws IoError without
/// one
std::vector<HostSlots> nodes_of_node_file(std::string const& text, int per_node);

}  // namespace tessera::cli
