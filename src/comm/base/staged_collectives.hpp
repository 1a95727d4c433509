#pragma once
/// Collectives on device memory through pinned host memory and the collectives of the host.

#include <memory>

#include "tessera/comm/base/collectives.hpp"

namespace tessera::comm::detail {

std::unique_ptr<Collectives> make_staged(std::unique_ptr<Collectives> host, Deadline deadline);

}  // namespace tessera::comm::detail
