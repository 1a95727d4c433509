// User guide of NCCL, section "Error handling and communicator abort": the
// application must check errors and deadlines.
#include "nccl/nccl_watchdog.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <algorithm>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"

namespace tessera::comm::detail {
namespace {
constexpr std::chrono::milliseconds check_interval{10};
}

NcclWatchdog::NcclWatchdog(std::vector<NcclComm*> comms, int rank, Deadline deadline,
                           HangWatch& hang_watch)
    : comms_(std::move(comms)),
      rank_(rank),
      deadline_(deadline),
      hang_watch_(hang_watch),
      thread_([this] { run(); }) {}

NcclWatchdog::~NcclWatchdog() {
  {
    std::lock_guard const lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void NcclWatchdog::add(std::size_t comm, std::string what, memory::Event after,
                       memory::Event done) {
  bool first = false;
  {
    std::lock_guard const lock(mutex_);
    first = in_flight_.empty();
    in_flight_.push_back({comm, std::move(what), std::move(after), std::move(done), {}});
  }
  if (first) changed_.notify_one();
}

void NcclWatchdog::fail(std::exception_ptr error) noexcept {
  std::lock_guard const lock(
      error_mutex_);  // a thread that sees the error finds the communicators aborted
  if (!error_) error_ = std::move(error);
  NcclComm::abort_all(comms_);
}

bool NcclWatchdog::failed() const {
  std::lock_guard const lock(error_mutex_);
  return error_ != nullptr;
}

void NcclWatchdog::rethrow() const {
  std::lock_guard const lock(error_mutex_);
  if (error_) std::rethrow_exception(error_);
}

void NcclWatchdog::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (in_flight_.empty() || failed()) {
      changed_.wait(lock, [this] { return stop_ || (!in_flight_.empty() && !failed()); });
      continue;
    }
    try {
      HangWatch::Inside const inside(hang_watch_, HangWatch::Watched::checker);
      check();
    } catch (...) {
      in_flight_.clear();
      HangWatch::Inside const inside(hang_watch_, HangWatch::Watched::checker);
      fail(std::current_exception());
    }
    changed_.wait_for(lock, check_interval, [this] { return stop_; });
  }
}

void NcclWatchdog::check() {
  std::erase_if(in_flight_, [](InFlight const& o) { return o.done.done(); });
  for (std::size_t c = 0; c < comms_.size(); ++c) {
    auto const first = std::find_if(in_flight_.begin(), in_flight_.end(),
                                    [c](InFlight const& o) { return o.comm == c; });
    if (first != in_flight_.end()) comms_[c]->check_async_error(first->what);
  }
  check_deadlines(Clock::now());
}

/// The first operation of each communicator starts when its input and the inputs of all earlier
/// calls are ready: NCCL starts kernels in the order of the calls.
void NcclWatchdog::check_deadlines(Clock::time_point now) {
  std::vector<char> busy(comms_.size(), 0);
  for (auto& o : in_flight_) {
    if (!o.after.done()) return;
    if (std::exchange(busy[o.comm], 1)) continue;
    if (o.start == Clock::time_point{}) o.start = now;
    if (now - o.start > deadline_)
      throw PeerLostError(
          -1, concat(o.what, " on rank ", rank_, " (", host_name(), ") did not finish within ",
                     deadline_text(deadline_),
                     "; a rank is missing. NCCL_DEBUG=INFO shows what each rank waits for"));
  }
}

}  // namespace tessera::comm::detail
#endif
