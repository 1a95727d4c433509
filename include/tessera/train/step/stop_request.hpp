#pragma once
/// Signals that ask a run to stop or to save: they set flags that the training loop reads between
/// steps, and StopCheck inside long ones.

#include <functional>
#include <string>

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

}  // namespace tessera::train
