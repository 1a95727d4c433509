#include "host/mpi_calls.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera::comm::detail {
namespace {

using namespace std::chrono_literals;

/// Of sends and receives between two ranks.
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
