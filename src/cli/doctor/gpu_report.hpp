#pragma once
/// The GPU part of `tessera doctor`. NVML is loaded at run time, so that this program links no
/// NVIDIA library.

#include "doctor/node_report.hpp"

namespace tessera::cli {

/// The GPUs that this build can use on this node, and problems with them.
NodeSection gpu_section();

/// Prints the report of `tessera doctor --gpus`: devices, paths between them, and findings.
void print_gpus();

}  // namespace tessera::cli
