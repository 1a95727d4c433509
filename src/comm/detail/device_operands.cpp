#include "detail/device_operands.hpp"

#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::comm::detail {

void check_blocks(char const* what, Blocks const& blocks, int ranks, std::int64_t numel) {
  bool const in_order = blocks.count >= 0 && blocks.offset >= 0 &&
                        (blocks.count + blocks.offset <= blocks.stride || ranks == 1);
  TESSERA_VALIDATE(in_order && (ranks - 1) * blocks.stride + blocks.offset + blocks.count <= numel,
                   InternalError, what, ": the blocks of ", ranks, " ranks (offset ", blocks.offset,
                   " + count ", blocks.count, " within stride ", blocks.stride,
                   ") do not fit into ", numel, " elements");
}

/// Device memory that every rank gets or none. Collective.
std::shared_ptr<void> allocate_together(Collectives& comm, std::string const& name,
                                        memory::Purpose purpose, std::size_t bytes) {
  std::shared_ptr<memory::Buffer> buffer;
  std::string refusal;
  try {
    buffer = std::make_shared<memory::Buffer>(name, purpose, bytes, memory::MemorySpace::device);
  } catch (OutOfMemoryError const& error) {
    refusal = error.what();
  }
  bool const all = agree(comm, refusal.empty());
  TESSERA_VALIDATE(refusal.empty(), OutOfMemoryError, refusal);
  TESSERA_VALIDATE(all, OutOfMemoryError, "another rank has no device memory for ", bytes,
                   " bytes of ", name, "; its own message says what its device holds");
  void* const data = buffer->data();
  return {std::move(buffer), data};
}

}  // namespace tessera::comm::detail
