#pragma once
/// What ranks ask of the training loop between two optimizer steps.

#include "tessera/comm/collectives.hpp"

namespace tessera::train {

struct StepRequests {
  int stop = 0;            ///< 0: continue; else a signal number or StopRequest::time_limit
  bool save = false;       ///< a resumable checkpoint was asked for
  bool disk_busy = false;  ///< a disk queue still writes the save in flight
  bool lock_lost = false;  ///< another job owns the output directory
  double seconds = 0.0;    ///< that the step took

  bool operator==(StepRequests const&) const = default;
};

/// The maximum over all ranks, by one all-reduce: signals reach ranks at different steps, and only
/// rank 0 knows the time limit and the lock. Collective.
StepRequests agree_on_requests(comm::Collectives& comm, StepRequests const& mine);

}  // namespace tessera::train
