#pragma once
/// The duration of a training with saves and failures.

#include <cstdint>

namespace tessera::plan {

/// Seconds. A failure ends the run; it starts again from its last complete save.
struct RunPlan {
  double work = 0.0;              ///< of all steps
  double interval = 0.0;          ///< of work between saves
  double save = 0.0;              ///< that a save blocks training
  double restart = 0.0;           ///< from a failure to the first step
  double between_failures = 0.0;  ///< mean, of all nodes together; 0: none
};

/// M e^(R/M) (e^((t+C)/M) - 1) W/t, for failures with exponential distances that may also hit saves
/// and restarts. Daly, "A higher order estimate of the optimum checkpoint interval", FGCS 2006,
/// equation 13.
double expected_duration(RunPlan const& plan);

/// One training with drawn failures, event by event.
struct SimulatedRun {
  double seconds = 0.0;
  std::int64_t failures = 0, saves = 0;
};
SimulatedRun simulate_run(RunPlan const& plan, std::uint64_t seed);

}  // namespace tessera::plan
