#pragma once
/// The duration of a training with saves and failures, and how often to save.

#include <cstdint>
#include <optional>

#include "tessera/plan/machine_profile.hpp"
#include "tessera/plan/step_time.hpp"

namespace tessera::plan {

/// Seconds. A failure ends the run; it starts again from its last complete save.
struct RunPlan {
  double work = 0.0;              ///< seconds of all steps
  double interval = 0.0;          ///< seconds of work between saves
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

/// For a run that a failure of any node ends, and whose saves block it.
struct CheckpointAdvice {
  double save_seconds = 0.0;  ///< C, of one checkpoint
  double interval = 0.0;      ///< seconds between saves with the least loss; 0: no failure rate
  double lost = 0.0;          ///< part of the time for saves and repeated steps, C/i + i/(2 M)
};

/// Interval i = sqrt(2 C M), with M the mean time between failures of all nodes together. Young,
/// "A first order approximation to the optimum checkpoint interval", CACM 1974; Daly, FGCS 2006.
/// None: the profile has no save_bandwidth.
std::optional<CheckpointAdvice> checkpoint_advice(double checkpoint_bytes, Cluster const& cluster,
                                                  MachineProfile const& machine);

}  // namespace tessera::plan
