#pragma once
/// The ladder of the guides for memory that is short, and the smallest change when nothing fits.

#include <string>
#include <vector>

#include "tessera/plan/planner.hpp"

namespace tessera::plan {

/// A step of the ladder: what it changes, and the run with it and all steps before it.
struct LadderStep {
  std::string change;
  PlannedChoice planned;
};

/// Starts from the arguments at stage 0 and adds one change per step: micro-batch 1 with more
/// accumulation, gradient checkpointing, stage 2, stage 2 + offload, stage 3, stage 3 + offload,
/// NVMe. Steps that the machine lacks are left out.
std::vector<LadderStep> ladder(Planner& planner);

/// Returns for a model that fits nowhere the changes of the run or the machine after which it fits,
/// the smallest of each kind, as "--nodes 4". Empty: none was found.
std::vector<std::string> changes_that_fit(Planner& planner);

}  // namespace tessera::plan
