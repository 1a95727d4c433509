#include "detail/device_operands.hpp"

#include <utility>

#include "detail/operation.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::comm::detail {

void check_shards(char const* what, StridedShards const& shards, int ranks, std::int64_t numel) {
  TESSERA_VALIDATE(shards_fit(shards, ranks, numel), InternalError, what, ": ",
                   describe(shards, ranks), " do not fit into ", numel, " elements");
}

std::shared_ptr<void> allocate_on_all_ranks(Collectives& comm, std::string const& name,
                                            memory::Purpose purpose, std::size_t bytes) {
  std::shared_ptr<memory::Buffer> buffer;
  std::string failure;
  try {
    buffer = std::make_shared<memory::Buffer>(name, purpose, bytes, memory::MemorySpace::device);
  } catch (OutOfMemoryError const& error) {
    failure = error.what();
  }
  bool const all = agree(comm, failure.empty());
  TESSERA_VALIDATE(failure.empty(), OutOfMemoryError, failure);
  TESSERA_VALIDATE(all, OutOfMemoryError, "another rank cannot allocate ",
                   human_bytes(static_cast<std::int64_t>(bytes)), " of device memory for ", name,
                   "; see the log of that rank for what its device holds");
  void* const data = buffer->data();
  return {std::move(buffer), data};
}

}  // namespace tessera::comm::detail
