#include "tessera/comm/host_collectives.hpp"

#include "detail/loopback_transport.hpp"
#include "detail/process_transport.hpp"
#include "detail/queued_collectives.hpp"

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
