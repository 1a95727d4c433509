#pragma once
/// The few things that every MPI call of this layer goes through.

#include <mpi.h>

#include <mutex>

#include "detail/operation.hpp"
#include "detail/peer_liveness.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera::comm::detail {

/// MPI_THREAD_SERIALIZED: one call at a time in the process. Held around single calls, never while
/// waiting.
std::mutex& mpi_mutex();

/// @throws InternalError with MPI's own text
void check_mpi(int result, char const* call, Operation const& operation);

/// A duplicate of another communicator that returns errors. Freed at the end, unless MPI has ended
/// or a peer was lost.
class MpiComm {
 public:
  explicit MpiComm(topology::CommHandle parent);
  MpiComm(MpiComm const&) = delete;
  MpiComm& operator=(MpiComm const&) = delete;
  ~MpiComm();
  MPI_Comm get() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  void mark_broken() { broken_ = true; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  bool broken_ = false;
};

/// Who the ranks of @p comm are. Collective.
PeerLiveness watch_peers(MpiComm const& comm, topology::MpiSession const& session);

}  // namespace tessera::comm::detail
