#pragma once
/// How often to save a checkpoint.

#include <optional>

#include "tessera/plan/collective_cost.hpp"
#include "tessera/plan/machine_profile.hpp"

namespace tessera::plan {

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
