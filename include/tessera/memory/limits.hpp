#pragma once
/// How much memory this process can still have.

#include <cstddef>
#include <string>

namespace tessera::memory {

struct AvailableMemory {
  std::size_t bytes = 0;
  std::string limited_by;  ///< "MemAvailable of the node", "memory limit of the control group",
                           ///< "address space limit (ulimit -v)"
};

/// Least of what the node has, what the control groups of the job leave, and what the address space
/// limit leaves, less what this process has allocated but not touched yet (pages are given out at
/// first touch). Reads a few files of /proc and /sys: some tens of microseconds.
AvailableMemory available_memory();

/// @throws OutOfMemoryError when @p bytes are more than available_memory(): a request that the
/// system would grant and later answer by killing the process. Requests below 1 MiB are not looked
/// at. @p copies processes of the node ask at once.
void require_available(std::string const& name, std::size_t bytes, std::size_t copies = 1);

}  // namespace tessera::memory
