#pragma once
/// What ranks ask of the training loop between two optimizer steps.

#include <array>
#include <cstdint>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

struct StepRequests {
  int stop = 0;            ///< 0: continue; else a signal number or StopRequest::time_limit
  bool save = false;       ///< a resumable checkpoint was asked for
  bool disk_busy = false;  ///< a disk queue still writes the save in flight
  bool lock_lost = false;  ///< another job owns the output directory
  double seconds = 0.0;    ///< that the step has taken

  bool operator==(StepRequests const&) const = default;
};

/// Requests as numbers whose sums over the ranks tell what any of them asks: signals reach ranks at
/// different steps, and only rank 0 knows the time limit and the lock.
using RequestCounts = std::array<std::int64_t, zero::StepValues::count>;
RequestCounts counts_of(StepRequests const& mine);
/// The highest stop request of all ranks, what any rank asks, and the mean of the seconds.
StepRequests requests_of(RequestCounts const& sums, int ranks);

/// Combines the requests of all ranks by an all-reduce of its own. Collective.
StepRequests agree_on_requests(comm::Collectives& comm, StepRequests const& mine);

}  // namespace tessera::train
