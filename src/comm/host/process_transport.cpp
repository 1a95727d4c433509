#include "host/process_transport.hpp"

#include <utility>

#include "host/loopback_transport.hpp"
#include "host/mpi_transport.hpp"
#include "host/shm_transport.hpp"

namespace tessera::comm::detail {

std::unique_ptr<Transport> make_process_transport(std::unique_ptr<MpiComm> comm,
                                                  topology::MpiSession const& session,
                                                  Deadline deadline, NodeTransport transport) {
  if (comm->get() == MPI_COMM_NULL) return nullptr;
  if (comm->size() == 1) return make_loopback_transport();
  GroupMembers members = exchange_members(*comm, session);
  if (transport == NodeTransport::automatic)
    if (auto shared =
            ShmTransport::try_make(comm, members, session, deadline, path_limits(comm->size())))
      return shared;
  return std::make_unique<MpiTransport>(std::move(comm), std::move(members), session, deadline,
                                        transport);
}

ProcessTransport::ProcessTransport(std::unique_ptr<MpiComm> comm, GroupMembers members,
                                   topology::MpiSession const& session, Deadline deadline,
                                   NodeTransport transport)
    : session_(session),
      comm_(std::move(comm)),
      members_(std::move(members)),
      deadline_(deadline),
      transport_(transport),
      calls_(*comm_, members_.peers, *this, deadline) {}

std::unique_ptr<Transport> ProcessTransport::split(Operation const& o,
                                                   topology::RankGroup const& group) {
  barrier(o);  // MPI_Comm_split has no deadline
  return make_process_transport(std::make_unique<MpiComm>(*comm_, group), session_, deadline_,
                                transport_);
}

}  // namespace tessera::comm::detail
