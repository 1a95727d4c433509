#pragma once
/// The MPI communicator of this layer, the lock around MPI calls and the check of their results.

#include <mpi.h>

#include <functional>
#include <mutex>
#include <vector>

#include "base/operation.hpp"
#include "base/peer_liveness.hpp"
#include "base/transport.hpp"
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

// Nonblocking MPI calls, polled with a deadline, so that a dead peer becomes an error; and the
// operations that every transport between processes leaves to MPI.

/// Bytes per MPI call, well below 2 GiB: counts and internal sizes of some libraries are 32-bit.
constexpr std::size_t message_limit = std::size_t{512} << 20;
inline int as_int(std::size_t bytes) { return static_cast<int>(bytes); }

class MpiCalls {
 public:
  /// All outlive this object.
  MpiCalls(MpiComm& comm, PeerLiveness const& peers, Transport const& transport, Deadline deadline)
      : comm_(comm), peers_(peers), transport_(transport), deadline_(deadline) {}

  /// Starts a call under the lock and waits for it.
  /// @param peer the rank of the group that it waits for, -1: all
  void run(Operation const& operation, char const* call,
           std::function<int(MPI_Request*)> const& start, int peer = -1);

  void send(Operation const& operation, std::byte const* data);
  void receive(Operation const& operation, std::byte* data);
  void all_to_all(Operation const& operation, std::byte const* in, Parts const& send,
                  std::byte* out, Parts const& receive);

 private:
  void finish(Operation const& operation, MPI_Request request, int peer);

  MpiComm& comm_;
  PeerLiveness const& peers_;
  Transport const& transport_;
  Deadline deadline_;
};

}  // namespace tessera::comm::detail
