#pragma once
/// Where the states of the optimizer are, and which queue updates them.

#include <functional>

#include "tessera/memory/buffer.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::zero {

/// Memory space of a state, and the queue that updates and copies it. The queue outlives the
/// engine.
struct StatePlacement {
  memory::MemorySpace space = memory::MemorySpace::host;
  memory::Queue* queue = nullptr;
};
using PlaceState = std::function<StatePlacement(optim::StateSpec const& state)>;

}  // namespace tessera::zero
