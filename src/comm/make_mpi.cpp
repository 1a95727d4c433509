#include <algorithm>

#include "detail/mpi_transport.hpp"
#include "detail/queued_collectives.hpp"

namespace tessera::comm {

std::unique_ptr<Collectives> make_mpi(topology::MpiSession const& session, Deadline deadline, NodeTransport) {
  if (session.info().world_size == 1)
    return std::make_unique<detail::QueuedCollectives>(detail::make_loopback_transport(), deadline);
  return std::make_unique<detail::QueuedCollectives>(std::make_unique<detail::MpiTransport>(session, deadline), deadline);
}

}  // namespace tessera::comm
