#pragma once
/// Cuts the region of a unit that a rank updates into runs of one parameter group.

#include <cstdint>
#include <vector>

#include "tessera/optim/optimizer.hpp"
#include "tessera/zero/layout/partition_plan.hpp"

namespace tessera::zero::detail {

/// Consecutive elements of a unit's flat buffer whose parameters are in one group. Padding between
/// two parameters of the group is part of the run.
struct GroupRun {
  UnitOffset begin;  ///< first element, in the unit's flat buffer
  std::int64_t numel = 0;
  std::size_t group = 0;  ///< index in OptimizerSpec::groups
  std::vector<optim::ParameterRun> parameters;
  bool operator==(GroupRun const&) const = default;
};

/// The parameter of the unit that has the element @p at, or the next one.
std::size_t parameter_at(UnitLayout const& unit, UnitOffset at);

/// The runs of [begin, end), as few as possible, in ascending order.
std::vector<GroupRun> group_runs(UnitLayout const& unit, UnitOffset begin, UnitOffset end,
                                 optim::OptimizerSpec const& spec);

/// Bytes that an element-wise update of @p segments reads and writes.
std::size_t update_bytes(optim::Segments const& segments, optim::OptimizerSpec const& spec);

}  // namespace tessera::zero::detail
