#pragma once
/// What an optimizer reads and writes in an update: addresses of master weights, states, gradients
/// and working weights of ranges.

#include <cstddef>
#include <vector>

#include "gradients/gradient_flow.hpp"
#include "optimizer/host_update.hpp"
#include "optimizer/state_table.hpp"

namespace tessera::zero::detail {

/// All that the addresses depend on; nothing of it moves while the engine exists.
struct SegmentSources {
  StoreContext const& context;
  StageRules const& rules;
  StateTable const& states;
  UpdateSchedule const& schedule;
  WeightStore const& weights;
  GradientFlow const& gradients;
  HostUpdate const* host;  ///< null: all updates are in the order of the compute queue
};

/// The range of a step.
optim::Segments segments_of_step(SegmentSources const& sources, optim::OptimizerSpec const& spec,
                                 UpdateStep const& step);
/// This rank's shard of @p unit, whose steps are all open. Nothing writes working weights there.
optim::Segments segments_of_shard(SegmentSources const& sources, optim::OptimizerSpec const& spec,
                                  UnitIndex unit);
/// Returns the entries of optim::Segment::parameter_states for one run. @param at first element of
/// a run of @p parameter, in the unit
std::vector<void*> parameter_states(SegmentSources const& sources, UnitIndex unit,
                                    std::size_t parameter, UnitOffset at);

}  // namespace tessera::zero::detail
