#pragma once
/// Signals that ask a run to stop or to save: they set flags that the training loop reads between
/// steps, and StopCheck inside long ones, on all ranks at the same layer.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "tessera/comm/base/collectives.hpp"

namespace tessera::train {

/// SIGUSR2: finish the step, save, continue. SIGTERM, SIGINT, SIGUSR1, SIGXCPU and SIGHUP: finish
/// the step, save, exit with 75. A second SIGINT or SIGTERM, at least one second after the first:
/// end immediately by the default action of the signal.
class StopRequest {
 public:
  /// Installs the signal thread. Call it first in main, before any other thread exists, so that
  /// every later thread inherits the blocked signal mask.
  static void install();
  /// The first signal that asked to stop, or 0.
  static int signal();
  /// Used like a signal number: the time limit of the job is near.
  static constexpr int time_limit = 1000;
  /// "SIGTERM", "the time limit", for messages and status.json.
  static std::string name(int request);
  /// Whether SIGUSR2 has arrived since the last call.
  static bool take_save();

  /// While one exists, the signal thread calls @p call with the number of a second SIGINT or
  /// SIGTERM before that signal ends the process. One at a time.
  class BeforeTheEnd {
   public:
    explicit BeforeTheEnd(std::function<void(int)> call);
    ~BeforeTheEnd();
    BeforeTheEnd(BeforeTheEnd const&) = delete;
    BeforeTheEnd& operator=(BeforeTheEnd const&) = delete;
  };
};

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
  /// Called between two layers of a step. @throws StopBetweenLayers on every rank
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
