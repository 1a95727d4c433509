#include "detail/event_state.hpp"

#include <algorithm>
#include <utility>

namespace tessera::memory {

void Event::State::wait() const {
  while (!wait_for(detail::longest_wait)) {
  }
  rethrow();
}

namespace detail {

void HostPoint::finish(std::exception_ptr error) {
  {
    std::lock_guard lock(mutex_);
    done_ = true;
    error_ = std::move(error);
  }
  changed_.notify_all();
}
bool HostPoint::done() const {
  std::lock_guard lock(mutex_);
  return done_;
}
bool HostPoint::wait_for(std::chrono::milliseconds time) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::min(time, longest_wait), [&] { return done_; });
}
void HostPoint::rethrow() const {
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

}  // namespace detail

}  // namespace tessera::memory
