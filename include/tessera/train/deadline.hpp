#pragma once
/// The time limit of a job: when must a run save, so that it is whole before the batch system kills
/// it?

#include <algorithm>
#include <chrono>
#include <optional>

namespace tessera::train {

/// Knows the end and how long steps and saves have taken so far. A step that would begin now is the
/// last one to be followed by a save when less is left than two of the longest steps, two of the
/// longest saves and a margin: a tenth of the whole time, between 5 and 60 seconds (Slurm's clock
/// counts in half minutes). As long as nothing has been saved the margin counts twice.
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
  /// What has to be left for another step.
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
