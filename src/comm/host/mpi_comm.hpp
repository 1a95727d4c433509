#pragma once
/// The MPI communicator of this layer, the lock around MPI calls and the check of their results.

#include <mpi.h>

#include <mutex>
#include <vector>

#include "base/operation.hpp"
#include "base/peer_liveness.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera::comm::detail {

/// MPI_THREAD_SERIALIZED allows one MPI call at a time per process. The mutex is held around single
/// calls, never while waiting.
std::mutex& mpi_mutex();

/// @throws InternalError with the text of MPI_Error_string
void check_mpi(int result, char const* call, Operation const& operation);

/// A duplicate of another communicator with MPI_ERRORS_RETURN. The destructor frees it unless MPI
/// is finalized or a peer was lost.
class MpiComm {
 public:
  explicit MpiComm(topology::CommHandle parent);
  /// MPI_Comm_split. Collective over @p parent; the result has no communicator for a negative
  /// color.
  MpiComm(MpiComm const& parent, topology::RankGroup const& group);
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

/// Where the ranks of a communicator run.
struct GroupMembers {
  PeerLiveness peers;
  std::vector<std::vector<std::size_t>> by_node;  ///< ranks of each node, in order of the lowest
};
/// Collective.
GroupMembers exchange_members(MpiComm const& comm, topology::MpiSession const& session);

}  // namespace tessera::comm::detail
