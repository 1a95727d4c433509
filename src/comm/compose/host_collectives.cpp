#include "tessera/comm/compose/host_collectives.hpp"

#include "base/queued_collectives.hpp"
#include "host/loopback_transport.hpp"
#include "host/process_transport.hpp"

namespace tessera::comm {

std::unique_ptr<Collectives> make_loopback() {
  return std::make_unique<detail::QueuedCollectives>(detail::make_loopback_transport(),
                                                     Deadline(std::chrono::minutes(10)));
}

std::unique_ptr<Collectives> make_mpi(topology::MpiSession const& session, Deadline deadline,
                                      NodeTransport transport) {
  return std::make_unique<detail::QueuedCollectives>(
      detail::make_process_transport(std::make_unique<detail::MpiComm>(session.world()), session,
                                     deadline, transport),
      deadline);
}

}  // namespace tessera::comm
