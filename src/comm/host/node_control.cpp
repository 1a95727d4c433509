#include "host/node_control.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/error.hpp"

namespace tessera::comm::detail {
namespace {

constexpr std::size_t page = 4096;
/// Polls of the communication thread before it sleeps, about 4 us in total: more would take the
/// core from a thread that computes.
constexpr int brief_polls = 100;
/// Polls of a caller that waits on a core of its own, about 250 us: several times what a sleep and
/// a wake-up cost.
constexpr int patient_polls = 5000;
/// Polls of a caller that yields a shared core between them. Where others compute, each takes as
/// long as the scheduler lets them, some milliseconds at most.
constexpr int yields = 200;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // about as long as x86's pause; yield does nothing on most cores
#endif
}

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
           timespec const* timeout) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout,
                 nullptr, 0);
}

static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::is_trivially_copyable_v<PostedOperation>);

}  // namespace

struct NodeControl::Header {
  alignas(64) std::atomic<std::uint64_t> arrivals;   ///< arrivals of all ranks at all phases
  alignas(64) std::atomic<std::uint32_t> completed;  ///< complete phases modulo 2^32; the futex
  std::atomic<std::uint32_t> sleepers;
};

struct NodeControl::Slot {
  alignas(64) std::atomic<std::uint64_t> phase;  ///< last one this rank has arrived at
  std::atomic<std::uint32_t> left;               ///< 0, or 1 after leave()
  std::atomic<std::int32_t> suspect;  ///< 1 + the lost rank because of which it left, 0: none
  alignas(64) PostedOperation posted[2];
};

std::size_t NodeControl::file_bytes(int ranks) {
  static_assert(sizeof(Header) <= page && sizeof(Slot) <= page);
  return page + static_cast<std::size_t>(ranks) * (page + 2 * half_bytes);
}

NodeControl::Header& NodeControl::header() const {
  return *reinterpret_cast<Header*>(mapping_.data());
}
NodeControl::Slot& NodeControl::slot(int rank) const {
  return *reinterpret_cast<Slot*>(mapping_.data() + page + static_cast<std::size_t>(rank) * page);
}
std::byte* NodeControl::staging(Rank rank, int half) const {
  return mapping_.data() + page + static_cast<std::size_t>(group_.size) * page +
         (2 * position(rank) + static_cast<std::size_t>(half)) * half_bytes;
}

NodeControl::NodeControl(Mapping mapping, Group group, PeerLiveness const& peers,
                         Transport const& transport, Deadline deadline, Waiting waiting)
    : mapping_(std::move(mapping)),
      group_(group),
      peers_(peers),
      transport_(transport),
      deadline_(deadline),
      waiting_(waiting) {}

NodeControl::~NodeControl() { leave(); }

void NodeControl::leave() {
  slot(group_.rank).left.store(1);
  futex(&header().completed, FUTEX_WAKE, INT_MAX, nullptr);
}

bool NodeControl::complete() const {
  auto const behind = static_cast<std::int32_t>(header().completed.load(std::memory_order_acquire) -
                                                static_cast<std::uint32_t>(phase_));
  return behind >= 0;
}

void NodeControl::arrive() {
  ++phase_;
  slot(group_.rank).phase.store(phase_, std::memory_order_release);
  std::uint64_t const arrivals = header().arrivals.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (arrivals != phase_ * static_cast<std::uint64_t>(group_.size)) return;
  // sequentially consistent: a rank that adds itself to the sleepers after this load sees the new
  // value and does not sleep
  header().completed.store(static_cast<std::uint32_t>(phase_), std::memory_order_seq_cst);
  if (header().sleepers.load(std::memory_order_seq_cst) > 0)
    futex(&header().completed, FUTEX_WAKE, INT_MAX, nullptr);
}

/// Until the phase completes, a rank leaves, or 100 ms have passed.
void NodeControl::sleep() const {
  header().sleepers.fetch_add(1, std::memory_order_seq_cst);
  std::uint32_t const seen = header().completed.load(std::memory_order_seq_cst);
  if (!complete()) {
    timespec const time{0, 100'000'000};
    futex(&header().completed, FUTEX_WAIT, seen, &time);
  }
  header().sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

/// Lowest rank that has ended without arriving, else the lowest that has not arrived, else -1.
int NodeControl::missing() const {
  int first = -1;
  for (int q = 0; q < group_.size; ++q) {
    if (slot(q).phase.load(std::memory_order_acquire) >= phase_) continue;
    if (!peers_.alive(q)) return q;
    if (first < 0) first = q;
  }
  return first;
}

void NodeControl::check_missing(Operation const& o, PeerWait& wait) {
  int const rank = missing();
  if (rank < 0)
    return wait.check(-1);  // the last rank is between its two stores, or has ended there
  auto const& absent = slot(rank);
  if (peers_.alive(rank) && absent.left.load() && absent.phase.load() < phase_) {
    int const suspect = absent.suspect.load() - 1;
    slot(group_.rank).suspect.store(suspect + 1);
    auto const message =
        concat(describe(o), ": ", peers_.describe(rank), " takes part in no further operation ",
               suspect >= 0 ? concat("because ", peers_.describe_in_world(suspect), " was lost")
                            : std::string("after an error or its shutdown; see its log"));
    if (suspect < 0) throw PeerStoppedError(peers_.world_rank(rank), message);
    throw PeerLostError(suspect, message);
  }
  try {
    wait.check(rank);
  } catch (PeerLostError const& error) {
    slot(group_.rank).suspect.store(error.rank + 1);
    throw;
  }
}

/// Polls without a sleep; false when the phase does not complete.
bool NodeControl::completes_soon() const {
  bool const waits_itself = SynchronousCalls::active();
  bool const yielding = waits_itself && waiting_ == Waiting::yield;
  int const polls = yielding ? yields : waits_itself ? patient_polls : brief_polls;
  for (int i = 0; i < polls; ++i) {
    if (complete()) return true;
    if (yielding)
      sched_yield();
    else
      relax();
  }
  return complete();
}

void NodeControl::synchronize(Operation const& o) {
  arrive();
  if (completes_soon()) return;
  PeerWait wait(o, peers_, transport_, deadline_);
  while (!complete()) {
    sleep();
    if (!complete()) check_missing(o, wait);
  }
}

void NodeControl::check_same(Operation const& own) const {
  for (int q = 1; q < group_.size; ++q) {
    Operation const &first = posted(0).operation, &other = posted(q).operation;
    TESSERA_VALIDATE(first == other, InternalError,
                     "ranks call different collectives: rank 0 calls ", describe(first), ", rank ",
                     q, " calls ", describe(other), ", this is rank ", group_.rank, " with ",
                     describe(own),
                     "; every rank must make the same calls in the same order with equal sizes");
  }
}

void NodeControl::post(PostedOperation const& own) {
  ++operations_;
  slot(group_.rank).posted[operations_ % 2] = own;
  synchronize(own.operation);
  check_same(own.operation);
}

PostedOperation const& NodeControl::posted(int rank) const {
  return slot(rank).posted[operations_ % 2];
}

}  // namespace tessera::comm::detail
