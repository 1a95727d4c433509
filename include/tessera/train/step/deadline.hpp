#pragma once
/// When a run must save, so that its checkpoint is complete before the job's time limit.

#include <algorithm>
#include <chrono>
#include <optional>

namespace tessera::train {

/// Knows the end of the job and the longest step and save so far. The run must save now if the time
/// left is less than two steps, two saves and a margin: a tenth of the total time, between 5 and 60
/// seconds (Slurm checks limits every 30 seconds). Until the first save the margin counts twice.
class Deadline {
 public:
  using Clock = std::chrono::system_clock;
  using Seconds = std::chrono::duration<double>;

  Deadline() = default;  ///< none: never due
  Deadline(Clock::time_point start, Clock::time_point end)
      : end_(end), margin_(std::clamp<Seconds>((end - start) / 10.0, Seconds(5), Seconds(60))) {}

  void step_took(Seconds time) { longest_step_ = std::max(longest_step_, time); }
  void save_took(Seconds time) {
    longest_save_ = std::max(longest_save_.value_or(Seconds(0)), time);
  }

  bool set() const { return end_.has_value(); }
  Clock::time_point end() const { return end_.value_or(Clock::time_point::max()); }
  /// The time that must be left to run another step.
  Seconds reserve() const {
    return longest_step_ * 2.0 + (longest_save_ ? *longest_save_ * 2.0 + margin_ : margin_ * 2.0);
  }
  bool due(Clock::time_point now) const { return end_ && Seconds(*end_ - now) < reserve(); }

 private:
  std::optional<Clock::time_point> end_;
  Seconds margin_{0};
  Seconds longest_step_{0};
  std::optional<Seconds> longest_save_;
};

}  // namespace tessera::train
