#include "tessera/train/loop/memory_schedule.hpp"

#include <algorithm>
#include <cmath>

namespace tessera::train {
namespace {

/// The first save of `auto` comes when a step has been measured.
constexpr std::int64_t first_automatic_interval = 2;
/// However cheap a step is.
constexpr double longest_interval = 1e6;

}  // namespace

MemorySchedule::MemorySchedule(config::MemorySaveSteps steps, std::int64_t first_step)
    : automatic_(steps.count == config::MemorySaveSteps::automatic),
      interval_(automatic_ ? first_automatic_interval : steps.count),
      last_(first_step - 1) {}

void MemorySchedule::step_took(double seconds) {
  if (steps_++ > 0) seconds_ += seconds;
}

void MemorySchedule::cost(double seconds) {
  if (!automatic_ || steps_ < 2 || seconds_ <= 0.0) return;
  double const step = seconds_ / static_cast<double>(steps_ - 1);
  interval_ = static_cast<std::int64_t>(
      std::clamp(std::ceil(seconds / (largest_cost * step)), 1.0, longest_interval));
}

}  // namespace tessera::train
