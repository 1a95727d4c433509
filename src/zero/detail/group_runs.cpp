#include "detail/group_runs.hpp"

#include <algorithm>

namespace tessera::zero::detail {

std::size_t parameter_at(UnitLayout const& unit, UnitOffset at) {
  auto const slot = std::find_if(unit.parameters.begin(), unit.parameters.end(),
                                 [&](ParameterSlot const& p) { return at < p.end(); });
  return static_cast<std::size_t>(slot - unit.parameters.begin());
}

std::vector<GroupRun> group_runs(UnitLayout const& unit, UnitOffset begin, UnitOffset end,
                                 optim::OptimizerSpec const& spec) {
  std::vector<GroupRun> out;
  for (auto const& p : unit.parameters) {
    UnitOffset const first = std::max(begin, p.offset), last = std::min(end, p.end());
    if (first >= last) continue;
    std::size_t const group =
        spec.group_of(p.decays ? optim::WeightDecay::applies : optim::WeightDecay::skipped);
    if (out.empty() || out.back().group != group) out.push_back({first, 0, group, {}});
    auto& run = out.back();
    run.numel = last - run.begin;
    run.parameters.push_back({p.shape, p.numel, p.parameter_offset(first).value(),
                              first - run.begin, last - first, p.name});
  }
  return out;
}

}  // namespace tessera::zero::detail
