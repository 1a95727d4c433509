#pragma once
/// Measures a choice by a few steps of the run that it makes.

#include "tessera/comm/base/collectives.hpp"
#include "tessera/plan/tuner.hpp"

namespace tessera::plan {

struct TrialContext {
  comm::Collectives& comm;
  int ranks_on_node = 1;
  bool cuda_graphs = false;
  std::int64_t warm_up_steps = 2, measured_steps = 2;  ///< at least
  double measured_seconds = 0.0;  ///< measured steps take at least so long together
};

/// Builds model and engine of @p choice with random weights, runs steps on random tokens, and frees
/// everything. Writes no file but swap files, which it removes. The seconds are those of the
/// fastest measured step, on the slowest rank. A choice that is refused or exceeds the memory of
/// one rank does not run on any. Gives up when the first two steps take longer than
/// @p useful_seconds each, or the first one much longer. Collective.
Trial run_trial(Planner& planner, Choice const& choice, TrialContext const& where,
                double useful_seconds);

}  // namespace tessera::plan
