#pragma once
/// Requests to end a run in an orderly way: signals set a flag, the training loop reads it between
/// steps.

#include <string>

namespace tessera::train {

/// What has been asked for. SIGUSR2: finish the step, save, go on. SIGTERM, SIGINT, SIGUSR1,
/// SIGXCPU and SIGHUP: finish the step, save, exit 75. A second SIGINT or SIGTERM, at least one
/// second after the first: end at once with the default action of the signal.
class StopRequest {
 public:
  /// Starts listening; call first thing in main, before any other thread exists, so that no other
  /// thread ever takes these signals.
  static void install();
  /// Number of the first signal that asked to stop, or 0.
  static int signal();
  /// Stands where a signal number may stand: the job's time is nearly up.
  static constexpr int time_limit = 1000;
  /// "SIGTERM", "the time limit", for messages and status.json.
  static std::string name(int request);
  /// Whether SIGUSR2 has come since the last call.
  static bool take_save();
};

}  // namespace tessera::train
