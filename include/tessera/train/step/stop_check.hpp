#pragma once
/// Answers a stop request inside a step or an evaluation, on all ranks at the same layer.

#include <chrono>
#include <cstdint>
#include <functional>

#include "tessera/comm/base/collectives.hpp"

namespace tessera::train {

/// Ends a pass because a rank was asked to stop. Thrown on every rank.
struct StopBetweenLayers {
  int request = 0;  ///< the highest of all ranks' signal numbers
};

/// Ranks may leave a pass only together, and asking costs one all-reduce. The ranks ask between all
/// layers of the first step, whose duration is unknown. Later they ask about four times per second,
/// and not at all in steps that take less than a second. Both follow from values that all ranks
/// share. In its first second a step does not end: a short one is finished and saved.
class StopCheck {
 public:
  /// @param poll  this rank's stop request, 0: none
  StopCheck(comm::Collectives& comm, std::function<int()> poll);

  /// @param previous_seconds  what the previous step took, the same on all ranks; 0: no step yet
  void begin_step(double previous_seconds);
  /// Between two layers of a step. @throws StopBetweenLayers on every rank
  void between_layers();
  /// Asks now. @throws StopBetweenLayers on every rank
  void ask();

 private:
  using Clock = std::chrono::steady_clock;
  void exchange(int request);

  comm::Collectives& comm_;
  std::function<int()> poll_;
  Clock::time_point started_;
  std::int64_t calls_ = 0;     ///< in this step
  std::int64_t interval_ = 1;  ///< calls from one question to the next; 0: none in this step
};

}  // namespace tessera::train
