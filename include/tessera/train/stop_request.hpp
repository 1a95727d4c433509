#pragma once
/// Requests to end a run in an orderly way: signals set a flag, the training loop reads it between steps.

#include <string>

namespace tessera::train {

/// What has been asked for. SIGTERM, SIGINT, SIGUSR1, SIGXCPU and SIGHUP: finish the step, save, exit 75. A second SIGINT or SIGTERM, at
/// least one second after the first: end at once with the default action of the signal.
class StopRequest {
 public:
  /// Starts listening; call first thing in main, before any other thread exists, so that no other thread ever takes these signals.
  static void install();
  /// Number of the first signal that asked to stop, or 0.
  static int signal();
  /// "SIGTERM", for messages and status.json.
  static std::string signal_name(int signal_number);
};

}  // namespace tessera::train
