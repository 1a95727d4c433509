#include "tessera/train/step/event_schedule.hpp"

namespace tessera::train {

bool EventSchedule::due(std::int64_t step) const {
  switch (interval) {
    case config::Interval::no:
    case config::Interval::best:
      return false;
    case config::Interval::steps:
      return (step % every == 0 || step == total_steps) && static_cast<double>(step) >= delay;
    case config::Interval::epoch:
      return (step % steps_per_epoch == 0 || step == total_steps) &&
             static_cast<double>(step) >= delay * static_cast<double>(steps_per_epoch);
  }
  return false;
}

}  // namespace tessera::train
