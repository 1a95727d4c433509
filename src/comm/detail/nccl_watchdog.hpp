#pragma once
/// Looks after the operations that are under way on NCCL's communicators, whoever waits for them:
/// also a host that waits for kernels behind a collective learns within the deadline that a peer is
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

#include "detail/nccl_comm.hpp"

namespace tessera::comm::detail {

class NcclWatchdog {
 public:
  /// @p comms outlive this object. An operation has @p deadline from the moment when all that it
  /// waits for on this rank is there.
  NcclWatchdog(std::vector<NcclComm*> comms, int rank, Deadline deadline);
  ~NcclWatchdog();

  /// In the order of the calls. @param comm index of the communicator; its operations run one after
  /// the other
  void add(std::size_t comm, std::string what, memory::Event after, memory::Event done);
  /// Ends all communicators; @p error is what everybody gets from now on, unless there was an
  /// earlier one.
  void fail(std::exception_ptr error) noexcept;
  bool failed() const;
  /// Throws the first error.
  void rethrow() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct UnderWay {
    std::size_t comm;
    std::string what;
    memory::Event after, done;
    Clock::time_point start{};  ///< zero: it cannot have started yet
  };
  void run();
  /// One look at everything; throws what is wrong.
  void look();
  void check_deadlines(Clock::time_point now);

  std::vector<NcclComm*> comms_;
  int rank_;
  Deadline deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<UnderWay> under_way_;
  bool stop_ = false;
  mutable std::mutex error_mutex_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace tessera::comm::detail
#endif
