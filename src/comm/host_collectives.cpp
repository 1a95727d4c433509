#include "tessera/comm/host_collectives.hpp"

#include "detail/loopback_transport.hpp"
#include "detail/mpi_transport.hpp"
#include "detail/queued_collectives.hpp"
#include "detail/shm_transport.hpp"

namespace tessera::comm {
namespace {

std::unique_ptr<detail::Transport> choose_transport(topology::MpiSession const& session,
                                                    Deadline deadline, NodeTransport transport) {
  if (session.info().world_size == 1) return detail::make_loopback_transport();
  if (transport == NodeTransport::automatic)
    if (auto shared = detail::ShmTransport::try_make(session, deadline)) return shared;
  return std::make_unique<detail::MpiTransport>(session, deadline);
}

}  // namespace

std::unique_ptr<Collectives> make_loopback() {
  return std::make_unique<detail::QueuedCollectives>(detail::make_loopback_transport(),
                                                     Deadline(std::chrono::minutes(10)));
}

std::unique_ptr<Collectives> make_mpi(topology::MpiSession const& session, Deadline deadline,
                                      NodeTransport transport) {
  return std::make_unique<detail::QueuedCollectives>(choose_transport(session, deadline, transport),
                                                     deadline);
}

}  // namespace tessera::comm
