#pragma once
/// Collectives on host memory.

#include <memory>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/host/node_transport.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera::comm {

/// A group of one rank: every operation is a copy or does nothing.
std::unique_ptr<Collectives> make_loopback();

/// All ranks of @p session. Operations run on a worker thread. Collective.
std::unique_ptr<Collectives> make_mpi(topology::MpiSession const& session, Deadline deadline,
                                      NodeTransport transport = NodeTransport::automatic);

}  // namespace tessera::comm
