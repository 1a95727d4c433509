#include "host/mpi_comm.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <limits>
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

namespace {

using namespace std::chrono_literals;

/// The MPI tag of sends and receives between two ranks.
constexpr int message_tag = 17;

/// Backoff of a polling loop: yields at first, then sleeps for longer and longer, to leave the core
/// to the compute threads.
class Backoff {
 public:
  void pause(std::chrono::steady_clock::duration elapsed) {
    if (++calls_ <= 50) {
      sched_yield();
      return;
    }
    long const ns = elapsed < 5ms ? 20'000 : elapsed < 1s ? 100'000 : 500'000;
    timespec const time{0, ns};
    nanosleep(&time, nullptr);
  }

 private:
  int calls_ = 0;
};

/// Reduces the timer slack of the thread: the kernel otherwise adds 50 us to each short sleep.
void use_precise_sleeps() {
  static thread_local int const once = prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  (void)once;
}

std::vector<int> as_ints(std::vector<std::int64_t> const& values) {
  return {values.begin(), values.end()};
}

/// MPI's name for elements of this size, so that counts are of elements.
MPI_Datatype type_of_size(std::size_t bytes) {
  return bytes == 1   ? MPI_UINT8_T
         : bytes == 2 ? MPI_UINT16_T
         : bytes == 4 ? MPI_UINT32_T
                      : MPI_UINT64_T;
}

}  // namespace

void MpiCalls::finish(Operation const& o, MPI_Request request, int peer) {
  PeerWait wait(o, peers_, transport_, deadline_);
  Backoff backoff;
  use_precise_sleeps();
  for (int done = 0;;) {
    {
      std::lock_guard lock(mpi_mutex());
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test", o);
    }
    if (done) return;
    wait.check(peer);
    backoff.pause(wait.elapsed());
  }
}

void MpiCalls::run(Operation const& o, char const* call,
                   std::function<int(MPI_Request*)> const& start, int peer) {
  MPI_Request request = MPI_REQUEST_NULL;
  {
    std::lock_guard lock(mpi_mutex());
    check_mpi(start(&request), call, o);
  }
  try {
    finish(o, request, peer);
  } catch (...) {
    comm_.mark_broken();
    topology::MpiSession::leave_without_finalize();
    throw;
  }
}

void MpiCalls::send(Operation const& o, std::byte const* data) {
  std::size_t const bytes = o.bytes();
  for (std::size_t at = 0; at == 0 || at < bytes; at += message_limit) {
    int const n = as_int(std::min(message_limit, bytes - at));
    run(
        o, "MPI_Issend",
        [&](MPI_Request* r) {
          return MPI_Issend(data + at, n, MPI_BYTE, o.root, message_tag, comm_.get(), r);
        },
        o.root);
  }
}

void MpiCalls::receive(Operation const& o, std::byte* data) {
  std::size_t const bytes = o.bytes();
  for (std::size_t at = 0; at == 0 || at < bytes; at += message_limit) {
    int const n = as_int(std::min(message_limit, bytes - at));
    run(
        o, "MPI_Irecv",
        [&](MPI_Request* r) {
          return MPI_Irecv(data + at, n, MPI_BYTE, o.root, message_tag, comm_.get(), r);
        },
        o.root);
  }
}

void MpiCalls::all_to_all(Operation const& o, std::byte const* in, Parts const& send,
                          std::byte* out, Parts const& receive) {
  for (auto const* parts : {&send, &receive})
    for (std::size_t q = 0; q < parts->counts.size(); ++q)
      TESSERA_VALIDATE(parts->counts[q] + parts->offsets[q] <= std::numeric_limits<int>::max(),
                       InternalError, describe(o), ": part ", q, " ends at element ",
                       parts->counts[q] + parts->offsets[q],
                       ", and MPI counts to 2147483647; use smaller operations");
  auto const to = as_ints(send.counts), to_at = as_ints(send.offsets),
             from = as_ints(receive.counts), from_at = as_ints(receive.offsets);
  MPI_Datatype const type = type_of_size(o.element_bytes());
  run(o, "MPI_Ialltoallv", [&](MPI_Request* r) {
    return MPI_Ialltoallv(in, to.data(), to_at.data(), type, out, from.data(), from_at.data(), type,
                          comm_.get(), r);
  });
}

}  // namespace tessera::comm::detail
