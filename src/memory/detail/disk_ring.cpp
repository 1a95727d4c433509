#include "detail/disk_ring.hpp"

#include <cerrno>

#include "tessera/memory/swap_file.hpp"

#ifdef TESSERA_HAVE_URING
#include <liburing.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <thread>

#include "detail/event_state.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"
#endif

namespace tessera::memory::detail {

#ifdef TESSERA_HAVE_URING
namespace {

class Ring {
 public:
  /// @return null or the reason why the system gives no ring
  std::string open(int depth) {
    int const result = io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0);
    if (result < 0) return std::strerror(-result);
    is_open_ = true;
    auto* const probe = io_uring_get_probe_ring(&ring_);
    bool const reads = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                       io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    return reads ? "" : "the kernel is older than 5.6";
  }
  ~Ring() {
    if (is_open_) io_uring_queue_exit(&ring_);
  }
  io_uring* get() { return &ring_; }

 private:
  io_uring ring_{};
  bool is_open_ = false;
};

class UringThread final : public DiskRing {
 public:
  UringThread(std::string name, SwapOptions const& options, std::unique_ptr<Ring> ring)
      : name_(std::move(name)),
        options_(options),
        ring_(std::move(ring)),
        requests_(static_cast<std::size_t>(options.queue_depth)),
        thread_([this] { run(); }) {
    // the thread starts after all members that it uses
  }
  ~UringThread() override {
    {
      std::lock_guard const lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  Event start(DiskTransfer transfer) override {
    auto point = std::make_shared<HostPoint>();
    {
      std::lock_guard const lock(mutex_);
      arriving_.push_back({std::move(transfer), point});
    }
    changed_.notify_one();
    return Event(std::move(point));
  }
  Event record() override { return start({}); }

 private:
  struct Job {
    DiskTransfer transfer;
    std::shared_ptr<HostPoint> point;
    bool is_ready = false;      ///< its events have happened
    std::size_t submitted = 0;  ///< bytes
    int in_flight = 0;          ///< requests
    bool is_submitted() const { return submitted == transfer.bytes; }
  };
  /// A request of a job, complete or in parts.
  struct Request {
    Job* job = nullptr;  ///< null: free
    std::size_t begin = 0;
    DiskProgress progress{0};
  };

  void run() {
    use_allowed_cores();
    pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
    while (take()) {
      submit_blocks();
      if (in_flight_ > 0) reap();
      finish_jobs();
    }
  }

  /// Takes the transfers that have arrived; blocks when there is nothing else to do.
  /// @return false when this thread ends
  bool take() {
    std::unique_lock lock(mutex_);
    if (jobs_.empty()) changed_.wait(lock, [&] { return stopping_ || !arriving_.empty(); });
    jobs_.splice(jobs_.end(), arriving_);
    return !jobs_.empty();
  }

  void submit_blocks() {
    if (options_.events == SwapOptions::Events::wait && in_flight_ > 0) return;
    for (auto& job : jobs_) {
      if (!job.is_submitted() && !is_ready(job)) break;
      while (!job.is_submitted() && in_flight_ < options_.queue_depth) submit_block(job);
      if (in_flight_ == options_.queue_depth) break;
    }
  }

  /// Waits for the events of @p job only when no request is in flight.
  bool is_ready(Job& job) {
    if (job.is_ready) return true;
    auto const& after = job.transfer.after;
    if (in_flight_ > 0 &&
        !std::all_of(after.begin(), after.end(), [](Event const& event) { return event.done(); }))
      return false;
    job.is_ready = true;
    try {
      for (auto const& event : after)
        if (event.state()) event.state()->wait();
    } catch (...) {
      fail(std::current_exception());
    }
    return true;
  }

  void submit_block(Job& job) {
    if (failed_) {
      job.submitted = job.transfer.bytes;
      return;
    }
    auto const& transfer = job.transfer;
    auto const free = std::find_if(requests_.begin(), requests_.end(),
                                   [](Request const& request) { return !request.job; });
    TESSERA_EXPECT(free != requests_.end());
    std::size_t const bytes =
        transfer.file
            ->first_extent(transfer.offset + job.submitted,
                           std::min(options_.block_size, transfer.bytes - job.submitted))
            .bytes;
    *free = {&job, job.submitted, DiskProgress(bytes)};
    job.submitted += bytes;
    ++job.in_flight;
    ++in_flight_;
    prepare(*free);
  }

  /// Gives what remains of a request to the ring.
  void prepare(Request& request) {
    auto const& transfer = request.job->transfer;
    std::size_t const at = request.begin + request.progress.completed();
    auto const extent =
        transfer.file->first_extent(transfer.offset + at, request.progress.remaining());
    auto* const entry = io_uring_get_sqe(ring_->get());
    TESSERA_EXPECT(entry != nullptr);
    auto const bytes = static_cast<unsigned>(extent.bytes);
    auto const offset = static_cast<__u64>(extent.offset);
    if (transfer.access == SwapFile::Access::read)
      io_uring_prep_read(entry, extent.file, transfer.memory + at, bytes, offset);
    else
      io_uring_prep_write(entry, extent.file, transfer.memory + at, bytes, offset);
    io_uring_sqe_set_data(entry, &request);
    if (options_.submit == SwapOptions::Submit::single) io_uring_submit(ring_->get());
  }

  /// Submits what is prepared, waits for a completion and takes all that have come.
  void reap() {
    io_uring_submit_and_wait(ring_->get(), 1);  // refusals are temporary: the next call repeats it
    std::vector<std::pair<Request*, int>> completed;
    io_uring_cqe* entry = nullptr;
    unsigned head = 0;
    io_uring_for_each_cqe(ring_->get(), head, entry) {
      completed.emplace_back(static_cast<Request*>(io_uring_cqe_get_data(entry)), entry->res);
    }
    io_uring_cq_advance(ring_->get(), static_cast<unsigned>(completed.size()));
    for (auto const& [request, result] : completed) complete(*request, result);
  }

  void complete(Request& request, int result) {
    auto& job = *request.job;
    int const reason = request.progress.advance(result);
    if (reason == 0 && request.progress.remaining() > 0) return prepare(request);
    if (reason != 0) {
      try {
        job.transfer.file->fail(job.transfer.access, job.transfer.offset + request.begin,
                                request.progress.completed() + request.progress.remaining(),
                                reason);
      } catch (...) {
        fail(std::current_exception());
      }
    }
    request.job = nullptr;
    --job.in_flight;
    --in_flight_;
  }

  void fail(std::exception_ptr error) {
    if (!failed_) failed_ = std::move(error);
  }

  /// Jobs end in their order, so that an event means that all before it have completed.
  void finish_jobs() {
    while (!jobs_.empty() && jobs_.front().is_submitted() && jobs_.front().in_flight == 0) {
      if (!is_ready(jobs_.front())) return;
      jobs_.front().point->finish(failed_);
      jobs_.pop_front();
    }
  }

  std::string name_;
  SwapOptions options_;
  std::unique_ptr<Ring> ring_;
  std::list<Job> jobs_;  ///< jobs of this thread, like the next ones
  std::vector<Request> requests_;
  int in_flight_ = 0;
  std::exception_ptr failed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Job> arriving_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<DiskRing> make_disk_ring(std::string const& name, SwapOptions const& options,
                                         std::string& why) {
  auto ring = std::make_unique<Ring>();
  why = ring->open(options.queue_depth);
  if (!why.empty()) return nullptr;
  return std::make_unique<UringThread>(name, options, std::move(ring));
}

#else

std::unique_ptr<DiskRing> make_disk_ring(std::string const&, SwapOptions const&, std::string& why) {
  why = "this build has no liburing";
  return nullptr;
}

#endif

namespace {

constexpr int most_attempts = 16;

}  // namespace

/// A request that continues in the middle of a page would not be aligned: that page is repeated.
int DiskProgress::advance(ssize_t result) {
  bool const is_interrupted = result == -EINTR || result == -EAGAIN;
  if (result < 0 && !is_interrupted) return static_cast<int>(-result);
  auto const bytes = is_interrupted ? 0 : static_cast<std::size_t>(result);
  bool const is_last = bytes == remaining();
  std::size_t const usable = is_last ? bytes : bytes / swap_alignment * swap_alignment;
  completed_ += usable;
  attempts_ = usable > 0 ? 0 : attempts_ + 1;
  return attempts_ < most_attempts || remaining() == 0 ? 0 : EIO;
}

}  // namespace tessera::memory::detail
