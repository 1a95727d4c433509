#include "base/transport.hpp"

#include <utility>

namespace tessera::comm::detail {

std::shared_ptr<void> allocate_private(std::string const& name, memory::Purpose purpose,
                                       std::size_t bytes) {
  auto buffer = std::make_shared<memory::Buffer>(name, purpose, bytes);
  void* const data = buffer->data();
  return {std::move(buffer), data};
}

}  // namespace tessera::comm::detail
