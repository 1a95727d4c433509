#pragma once
/// Where the time of a step goes: kinds of kernels, waiting for other queues (communication that
/// nothing hides, drives, copies), and the rest (gaps between kernels, the host's own work).

#include <array>
#include <memory>
#include <string>

#include "tessera/core/config_tree.hpp"
#include "tessera/kernels/launch/kernel_times.hpp"

namespace tessera::train {

struct WorkTimes {
  std::array<double, kernels::work_kinds> kernels{};  ///< seconds, by kernels::Work
  double waits = 0.0;                                 ///< of the thread that trains
  double rest = 0.0;

  double total() const;
  /// {"products": 0.41, ..., "waits": 0.0, "rest": 0.01}, seconds
  ConfigTree tree() const;
  /// "products 61.0 %, attention 12.1 %, ..., waits 0.4 %, rest 1.2 %"
  std::string text() const;
};

/// Measures while it lives; one at a time. On a GPU the kernels of a stream, which run while the
/// host is ahead: rest is what the stream idles, and what runs in CUDA graphs.
class WorkClock {
 public:
  WorkClock();
  void begin();
  /// Since begin(). @param seconds  between the two
  WorkTimes end(double seconds);

 private:
  kernels::KernelTimes kernels_;
  double waited_before_ = 0.0;
};

}  // namespace tessera::train
