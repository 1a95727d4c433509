// User guide of NCCL, section "Error handling and communicator abort": errors and deadlines are the
// application's to look after.
#include "detail/nccl_watchdog.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <algorithm>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/host.hpp"

namespace tessera::comm::detail {
namespace {
constexpr std::chrono::milliseconds between_looks{10};
}

NcclWatchdog::NcclWatchdog(std::vector<NcclComm*> comms, int rank, Deadline deadline)
    : comms_(std::move(comms)), rank_(rank), deadline_(deadline), thread_([this] { run(); }) {}

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
    first = under_way_.empty();
    under_way_.push_back({comm, std::move(what), std::move(after), std::move(done), {}});
  }
  if (first) changed_.notify_one();
}

void NcclWatchdog::fail(std::exception_ptr error) noexcept {
  std::lock_guard const lock(error_mutex_);  // who sees the error finds the communicators ended
  if (!error_) error_ = std::move(error);
  for (auto* const comm : comms_) comm->abort();
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
    if (under_way_.empty() || failed()) {
      changed_.wait(lock, [this] { return stop_ || (!under_way_.empty() && !failed()); });
      continue;
    }
    try {
      look();
    } catch (...) {
      under_way_.clear();
      fail(std::current_exception());
    }
    changed_.wait_for(lock, between_looks, [this] { return stop_; });
  }
}

void NcclWatchdog::look() {
  std::erase_if(under_way_, [](UnderWay const& o) { return o.done.done(); });
  for (std::size_t c = 0; c < comms_.size(); ++c) {
    auto const first = std::find_if(under_way_.begin(), under_way_.end(),
                                    [c](UnderWay const& o) { return o.comm == c; });
    if (first != under_way_.end()) comms_[c]->look(first->what);
  }
  check_deadlines(Clock::now());
}

/// The first operation of each communicator runs once its own input and that of all calls before it
/// are there: NCCL starts kernels in the order of the calls.
void NcclWatchdog::check_deadlines(Clock::time_point now) {
  std::vector<char> busy(comms_.size(), 0);
  for (auto& o : under_way_) {
    if (!o.after.done()) return;
    if (std::exchange(busy[o.comm], 1)) continue;
    if (o.start == Clock::time_point{}) o.start = now;
    if (now - o.start > deadline_)
      throw PeerLostError(
          -1, concat(o.what, " on rank ", rank_, " (", host_name(), ") did not finish within ",
                     deadline_.count(),
                     " ms; a rank is missing. NCCL_DEBUG=INFO says what each rank waits for"));
  }
}

}  // namespace tessera::comm::detail
#endif
