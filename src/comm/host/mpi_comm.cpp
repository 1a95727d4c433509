#include "host/mpi_comm.hpp"

#include <cstring>
#include <map>
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

MpiComm::MpiComm(MpiComm const& parent, topology::RankGroup const& group) {
  std::lock_guard lock(mpi_mutex());
  MPI_Comm_split(parent.get(), group.color < 0 ? MPI_UNDEFINED : group.color, group.key, &comm_);
  if (comm_ == MPI_COMM_NULL) return;
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

MpiComm::~MpiComm() {
  if (comm_ == MPI_COMM_NULL) return;
  std::lock_guard lock(mpi_mutex());
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && !broken_) MPI_Comm_free(&comm_);
}

GroupMembers exchange_members(MpiComm const& comm, topology::MpiSession const& session) {
  struct PeerRecord {
    ProcessId process;
    std::int64_t world_rank;
  };
  auto const& info = session.info();
  PeerRecord const own{this_process(), info.rank};
  std::vector<PeerRecord> records(static_cast<std::size_t>(comm.size()));
  {
    std::lock_guard lock(mpi_mutex());
    MPI_Allgather(&own, sizeof own, MPI_BYTE, records.data(), sizeof own, MPI_BYTE, comm.get());
  }
  std::vector<PeerLiveness::Peer> peers;
  std::vector<std::vector<std::size_t>> by_node;
  std::map<topology::NodeIndex, std::size_t> place;
  for (std::size_t r = 0; r < records.size(); ++r) {
    auto const world = static_cast<std::size_t>(records[r].world_rank);
    auto const node = session.nodes()[world];
    peers.push_back(
        {session.hosts()[world], records[r].process, node == info.node, static_cast<int>(world)});
    auto const [at, is_new] = place.emplace(node, by_node.size());
    if (is_new) by_node.emplace_back();
    by_node[at->second].push_back(r);
  }
  return {PeerLiveness(std::move(peers), &session), std::move(by_node)};
}

}  // namespace tessera::comm::detail
