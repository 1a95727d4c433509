#pragma once
/// The memory of this process by purpose, for memory_breakdown.

#include <string>

namespace tessera::train {

/// "memory (now / peak): weights 1.0 MiB / 1.0 MiB, ..., total ...". Device memory where there is a
/// device, else host memory.
std::string memory_text();

}  // namespace tessera::train
