#pragma once
/// The host memory that this process can still allocate, and the bytes that it holds in each memory
/// space.

#include <atomic>
#include <cstddef>
#include <string>

#include "tessera/memory/memory_tracker.hpp"

namespace tessera::memory {

struct AvailableMemory {
  std::size_t bytes = 0;
  std::string limited_by;  ///< "MemAvailable of the node", "memory limit of the control group",
                           ///< "address space limit (ulimit -v)", "--host_memory"
};

/// Bounds what this process allocates in @p space from now on, in bytes; 0: no bound. Of host
/// memory it counts pageable and pinned memory together.
void limit_memory(MemorySpace space, std::size_t bytes);
/// 0: none.
std::size_t memory_limit(MemorySpace space);
/// What that bound leaves.
std::size_t left_of_limit(MemorySpace space);

/// The minimum of the node's MemAvailable, the free part of the job's control groups and the free
/// part of the address space limit. Pages that this process has allocated but not touched yet are
/// subtracted, because the kernel assigns pages at first touch. Reads a few files of /proc and
/// /sys: some tens of microseconds.
/// @param processes  of this node that share its memory and have allocated and touched as much as
/// this one: the result is one process's share
AvailableMemory available_memory(std::size_t processes = 1);

/// @throws OutOfMemoryError when @p bytes exceed available_memory(): the system would grant such a
/// request and later kill the process. Requests below 1 MiB are not checked.
/// @param copies processes of this node that make the same request at the same time
void require_available(std::string const& name, std::size_t bytes, std::size_t copies = 1);

/// Bytes that this process holds in each memory space.
struct SpaceUse {
  std::size_t now = 0, peak = 0;
};
/// `pinned` is a part of `host`.
struct MemoryUse {
  SpaceUse device, host, pinned;
};
MemoryUse memory_use();

/// "activations 3.0 GiB, weights 812.0 MiB", in descending order; "nothing".
std::string bytes_by_purpose(MemorySpace space);

/// Counts pinned memory, which MemoryTracker::of_process() counts together with pageable memory.
class PinnedCounter {
 public:
  static PinnedCounter& of_process();
  void add(std::size_t bytes);
  void remove(std::size_t bytes) { now_ -= bytes; }
  SpaceUse use() const { return {now_, peak_}; }

 private:
  std::atomic<std::size_t> now_{0}, peak_{0};
};

}  // namespace tessera::memory
