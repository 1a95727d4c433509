#pragma once
/// Collectives that move nothing, to find out what memory the ranks of a group need and how long
/// their steps take.

#include <memory>

#include "tessera/comm/base/collectives.hpp"

namespace tessera::comm {

/// Rank 0 of @p ranks. Every operation has completed when it is called and leaves its output as it
/// is; a memory::WorkTrace records it. allocate() makes a buffer in @p space. Used in the scope of
/// a memory::BufferPlanning.
std::unique_ptr<Collectives> make_planning_collectives(int ranks, memory::MemorySpace space);

}  // namespace tessera::comm
