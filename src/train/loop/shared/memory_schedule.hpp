#pragma once
/// When a run saves a checkpoint to the memory of the nodes.

#include <cstdint>

#include "tessera/config/arguments.hpp"

namespace tessera::train {

/// A value; equal on all ranks if the calls are.
class MemorySchedule {
 public:
  /// Share of the time that saves may cost with `auto`.
  static constexpr double largest_cost = 0.01;

  /// @param first_step  of this start of the run
  MemorySchedule(config::MemorySaveSteps steps, std::int64_t first_step);

  /// The mean over the ranks of the seconds of a step. The first step is not counted, because it
  /// allocates.
  void step_took(double seconds);
  bool due(std::int64_t step) const { return step - last_ >= interval_; }
  /// A save of the state after @p step begins.
  void begins(std::int64_t step) { last_ = step; }
  /// The save has cost @p seconds, also where other work hid them. With `auto` this decides the
  /// interval.
  void cost(double seconds);
  std::int64_t interval() const { return interval_; }

 private:
  bool automatic_;
  std::int64_t interval_, last_;
  std::int64_t steps_ = 0;  ///< since the start
  double seconds_ = 0.0;    ///< sum over the steps after the first one
};

}  // namespace tessera::train
