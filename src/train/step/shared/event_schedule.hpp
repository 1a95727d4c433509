#pragma once
/// When the loop evaluates or saves.

#include <cstdint>

#include "tessera/config/arguments.hpp"

namespace tessera::train {

/// Never, every `every` steps, or at the end of each epoch; except for `no` always after the last
/// step too. `best` is decided by evaluations: never due.
struct EventSchedule {
  config::Interval interval = config::Interval::no;
  std::int64_t every = 1;
  std::int64_t steps_per_epoch = 1;
  std::int64_t total_steps = 0;
  double delay = 0.0;  ///< steps or epochs (as `interval`) before the first event

  bool due(std::int64_t step) const;
};

}  // namespace tessera::train
