#include "tessera/memory/host_buffer.hpp"

#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"

namespace tessera::memory {

Buffer make_host_buffer(std::string const& name, Purpose purpose, std::size_t bytes,
                        MemorySpace space) {
  if (space == MemorySpace::pinned) {
    try {
      return {name, purpose, bytes, space};
    } catch (OutOfMemoryError const& e) {
      log::warning(concat(e.what(), "; uses pageable memory for it, whose copies are slower"));
    }
  }
  return {name, purpose, bytes, MemorySpace::host};
}

}  // namespace tessera::memory
