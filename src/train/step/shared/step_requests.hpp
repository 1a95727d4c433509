#pragma once
/// What ranks ask of the training loop between two optimizer steps.

#include <array>
#include <cstdint>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/train/step/outcome.hpp"
#include "tessera/zero/optimizer/step_values.hpp"

namespace tessera::train {

/// Requests as numbers whose sums over the ranks tell what any of them asks: signals reach ranks at
/// different steps, and only rank 0 knows the time limit and the lock.
using RequestCounts = std::array<std::int64_t, zero::StepValues::count>;
RequestCounts counts_of(StepRequests const& mine);
/// The highest stop request of all ranks, what any rank asks, and the means of the seconds.
StepRequests requests_of(RequestCounts const& sums, int ranks);

/// Combines the requests of all ranks by an all-reduce of its own. Collective.
StepRequests agree_on_requests(comm::Collectives& comm, StepRequests const& mine);

}  // namespace tessera::train
