#pragma once
/// The transport of a group of one rank: copies and conversions.

#include <memory>

#include "base/transport.hpp"

namespace tessera::comm::detail {

std::unique_ptr<Transport> make_loopback_transport();

}  // namespace tessera::comm::detail
