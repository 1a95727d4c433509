#pragma once
/// The ladder of the guides for memory that is short, and the smallest change when nothing fits.

#include <string>
#include <vector>

#include "tessera/plan/planner.hpp"

namespace tessera::plan {

/// A rung: what it changes, and the run with it and the rungs before it.
struct Rung {
  std::string change;
  PlannedChoice planned;
};

/// From what the arguments give at stage 0, each rung on the one before it: micro-batch 1 with more
/// accumulation, gradient checkpointing, stage 2, stage 2 + offload, stage 3, stage 3 + offload,
/// NVMe. Rungs that the machine lacks are left out.
std::vector<Rung> ladder(Planner& planner);

/// For a model that fits nowhere: changes of the run or the machine after which it fits, the
/// smallest of each kind, as "--nodes 4". Empty: none was found.
std::vector<std::string> changes_that_fit(Planner& planner);

}  // namespace tessera::plan
