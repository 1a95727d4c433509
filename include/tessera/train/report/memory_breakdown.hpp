#pragma once
/// The memory of this process by space and purpose.

#include <cstddef>
#include <string>

#include "tessera/core/config_tree.hpp"

namespace tessera::train {

/// For memory_breakdown: "host memory of rank 0 (now / peak): weights 1.0 MiB / 1.0 MiB, ..., total
/// ...", preceded by that of the device where there is one.
std::string memory_text();

/// For status.json: bytes now and at the peak, of each memory space that the run uses.
/// @param nvme bytes of swap files
ConfigTree memory_tree(std::size_t nvme);

}  // namespace tessera::train
