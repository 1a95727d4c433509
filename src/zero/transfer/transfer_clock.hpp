#pragma once
/// Measures transfers between two events, without holding up the queues that run them.

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/memory/queue.hpp"

namespace tessera::zero::detail {

/// Seconds since a fixed point.
using Now = std::function<double()>;
/// The system's monotonic clock.
Now steady_now();

class TransferClock {
 public:
  /// @param count transfers are added up by an index below it
  TransferClock(std::size_t count, Now now);
  /// Does not wait for transfers in flight.
  ~TransferClock();
  TransferClock(TransferClock const&) = delete;
  TransferClock& operator=(TransferClock const&) = delete;

  /// A transfer that starts after @p begin and ends with @p end. Calls are in the order of the
  /// transfers. The time in which the transfer added before was in flight too is counted for that
  /// one only.
  void add(std::size_t index, memory::Event begin, memory::Event end);

  struct Measured {
    std::vector<double> seconds;  ///< sums by index
    std::vector<int> count;       ///< transfers
    /// Seconds of a transfer; 0: there was none.
    double mean(std::size_t index) const {
      return count[index] > 0 ? seconds[index] / count[index] : 0.0;
    }
  };
  /// Blocks until all transfers have completed. @throws PeerLostError when one never does
  Measured const& finish();

 private:
  void await(memory::Event const& event) const;
  Now now_;
  Measured measured_;  ///< written by the queue's thread
  std::atomic<bool> stops_ = false;
  std::unique_ptr<memory::Queue> thread_;
};

}  // namespace tessera::zero::detail
