#pragma once
/// Collectives of one rank on its device.

#include <memory>

#include "tessera/comm/base/collectives.hpp"

namespace tessera::comm::detail {

/// Copies, conversions and sums on a stream of the device; no library takes part. Operands in host
/// memory are passed on to @p host, which has one rank.
std::unique_ptr<Collectives> make_single_rank(std::unique_ptr<Collectives> host);

}  // namespace tessera::comm::detail
