#pragma once
/// Bytes that this process holds in each memory space.

#include <atomic>
#include <cstddef>
#include <string>

#include "tessera/memory/memory_tracker.hpp"

namespace tessera::memory {

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
