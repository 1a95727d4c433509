#pragma once
/// Large tasks on the threads of the host, for sources that only the host compiler can read
/// (vector extensions).

#include <cstdint>
#include <functional>

#include "tessera/memory/queue.hpp"

namespace tessera::kernels::detail {

/// task(i) for i in [0, n) as one named kernel. Each task is worth tens of microseconds.
void launch_tasks(memory::Queue& q, char const* name, std::int64_t n,
                  std::function<void(std::int64_t)> task);

}  // namespace tessera::kernels::detail
