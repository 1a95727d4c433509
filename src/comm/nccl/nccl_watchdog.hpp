#pragma once
/// Checks the NCCL operations in flight for errors and deadlines from a thread of its own. A host
/// that waits for kernels after a collective also learns within the deadline that a peer is
/// missing.

#ifdef TESSERA_HAVE_CUDA
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/hang_watch.hpp"
#include "nccl/nccl_comm.hpp"

namespace tessera::comm::detail {

class NcclWatchdog {
 public:
  /// @p comms and @p hang_watch outlive this object. @p deadline counts from the moment when the
  /// operation could start on this rank.
  NcclWatchdog(std::vector<NcclComm*> comms, int rank, Deadline deadline, HangWatch& hang_watch);
  ~NcclWatchdog();

  /// Called in the order of the operations. @param comm index of the communicator, which executes
  /// its operations one after the other
  void add(std::size_t comm, std::string what, memory::Event after, memory::Event done);
  /// Aborts all communicators. rethrow() throws @p error from now on, unless there was an earlier
  /// one.
  void fail(std::exception_ptr error) noexcept;
  bool failed() const;
  /// Throws the first error.
  void rethrow() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct InFlight {
    std::size_t comm;
    std::string what;
    memory::Event after, done;
    Clock::time_point start{};  ///< zero: it cannot have started
  };
  void run();
  /// Checks all operations once; throws the first error.
  void check();
  void check_deadlines(Clock::time_point now);

  std::vector<NcclComm*> comms_;
  int rank_;
  Deadline deadline_;
  HangWatch& hang_watch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<InFlight> in_flight_;
  bool stop_ = false;
  mutable std::mutex error_mutex_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace tessera::comm::detail
#endif
