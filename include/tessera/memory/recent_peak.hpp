#pragma once
/// The host memory that a part of a program needs at once.

#include <cstddef>

namespace tessera::memory {

/// The most bytes that MemoryTracker::of_process() has counted since the last call, or since the
/// start. The peaks of the tracker stay. @pre no other thread allocates meanwhile
std::size_t take_recent_peak();

}  // namespace tessera::memory
