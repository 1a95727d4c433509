#pragma once
/// Parts of tessera doctor that live in files of their own.

#include "tessera/topology/node_report.hpp"

namespace tessera::cli {

/// What the node's GPUs offer this build, and what stands in their way. Starts no long computation.
topology::NodeSection gpu_section();

}  // namespace tessera::cli
