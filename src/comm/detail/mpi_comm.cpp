#include "detail/mpi_comm.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera::comm::detail {

std::mutex& mpi_mutex() {
  static std::mutex mutex;
  return mutex;
}

void check_mpi(int result, char const* call, Operation const& operation) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw InternalError(
      concat(describe(operation), ": ", call, " failed: ", text,
             "; ranks that call different operations or sizes are one possible reason"));
}

MpiComm::MpiComm(topology::CommHandle parent) {
  MPI_Comm from = MPI_COMM_NULL;
  std::memcpy(&from, &parent.raw, sizeof from);
  std::lock_guard lock(mpi_mutex());
  MPI_Comm_dup(from, &comm_);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

MpiComm::~MpiComm() {
  std::lock_guard lock(mpi_mutex());
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && !broken_) MPI_Comm_free(&comm_);
}

PeerLiveness watch_peers(MpiComm const& comm, topology::MpiSession const& session) {
  struct Card {
    ProcessId process;
    std::int64_t node;
  };
  Card const own{this_process(), session.info().node};
  std::vector<Card> cards(static_cast<std::size_t>(comm.size()));
  {
    std::lock_guard lock(mpi_mutex());
    MPI_Allgather(&own, sizeof own, MPI_BYTE, cards.data(), sizeof own, MPI_BYTE, comm.get());
  }
  std::vector<PeerLiveness::Peer> peers;
  for (std::size_t r = 0; r < cards.size(); ++r)
    peers.push_back({session.hosts()[r], cards[r].process, cards[r].node == own.node});
  return PeerLiveness(std::move(peers), &session);
}

}  // namespace tessera::comm::detail
