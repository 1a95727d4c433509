#pragma once
/// Host memory that a device copies from and to.

#include <string>

#include "tessera/memory/buffer.hpp"

namespace tessera::memory {

/// Host memory, pinned when @p space says so and the system grants it; else pageable, with a
/// warning.
Buffer make_host_buffer(std::string const& name, Purpose purpose, std::size_t bytes,
                        MemorySpace space);

}  // namespace tessera::memory
