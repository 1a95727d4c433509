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
             "; the ranks may have called different operations, or with different sizes"));
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

PeerLiveness exchange_peers(MpiComm const& comm, topology::MpiSession const& session) {
  struct PeerRecord {
    ProcessId process;
    std::int64_t node;
  };
  PeerRecord const own{this_process(), static_cast<std::int64_t>(session.info().node)};
  std::vector<PeerRecord> records(static_cast<std::size_t>(comm.size()));
  {
    std::lock_guard lock(mpi_mutex());
    MPI_Allgather(&own, sizeof own, MPI_BYTE, records.data(), sizeof own, MPI_BYTE, comm.get());
  }
  std::vector<PeerLiveness::Peer> peers;
  for (std::size_t r = 0; r < records.size(); ++r)
    peers.push_back({session.hosts()[r], records[r].process, records[r].node == own.node});
  return PeerLiveness(std::move(peers), &session);
}

}  // namespace tessera::comm::detail
