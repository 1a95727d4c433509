#pragma once
/// State of an Event: a point of a host queue or of a stream.

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>

#include "tessera/memory/queue.hpp"

namespace tessera::memory {

class Event::State {
 public:
  virtual ~State() = default;
  virtual bool done() const = 0;
  virtual bool wait_for(std::chrono::milliseconds time) const = 0;
  /// Throws what the work before the point threw. @pre done()
  virtual void rethrow() const = 0;
  /// The event of the device runtime (cudaEvent_t) of a stream, else null.
  virtual void* native() const { return nullptr; }
  /// Waits without a deadline, for queues: the work that they wait for has deadlines.
  void wait() const;
};

namespace detail {

/// Longer waits would overflow the clock.
inline constexpr std::chrono::milliseconds longest_wait = std::chrono::hours(24 * 365);

/// Shared by the queue that executes the point and the threads that wait for it.
class HostPoint final : public Event::State {
 public:
  void finish(std::exception_ptr error);
  bool done() const override;
  bool wait_for(std::chrono::milliseconds time) const override;
  void rethrow() const override;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr error_;
};

}  // namespace detail
}  // namespace tessera::memory
