#include "transfer/transfer_clock.hpp"

#include <chrono>
#include <utility>

#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

Now steady_now() {
  return [] {
    auto const time = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(time).count();
  };
}

TransferClock::TransferClock(std::size_t count, Now now)
    : now_(std::move(now)),
      measured_{std::vector<double>(count, 0.0), std::vector<int>(count, 0)},
      thread_(memory::make_worker_queue("transfer clock")) {}
TransferClock::~TransferClock() { stops_ = true; }  // then the thread drops what is left

void TransferClock::add(std::size_t index, memory::Event begin, memory::Event end) {
  thread_->submit([this, index, begin = std::move(begin), end = std::move(end)] {
    await(begin);
    double const started = now_();
    await(end);
    measured_.seconds[index] += now_() - started;
    ++measured_.count[index];
  });
}

TransferClock::Measured const& TransferClock::finish() {
  thread_->record().wait("measured transfers of weights", compute_deadline);
  return measured_;
}

/// An event of ranks that have been lost never happens.
void TransferClock::await(memory::Event const& event) const {
  while (!stops_ && !event.wait_for(std::chrono::milliseconds(20))) {
  }
}

}  // namespace tessera::zero::detail
