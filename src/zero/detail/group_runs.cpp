#include "detail/group_runs.hpp"

#include <algorithm>

namespace tessera::zero::detail {

std::vector<GroupRun> group_runs(UnitLayout const& unit, std::int64_t begin, std::int64_t end,
                                 optim::OptimizerSpec const& spec) {
  std::vector<GroupRun> out;
  for (auto const& p : unit.parameters) {
    std::int64_t const first = std::max(begin, p.offset), last = std::min(end, p.offset + p.numel);
    if (first >= last) continue;
    std::size_t const group =
        spec.group_of(p.decays ? optim::WeightDecay::applies : optim::WeightDecay::skipped);
    if (out.empty() || out.back().group != group) out.push_back({first, 0, group, {}});
    auto& run = out.back();
    run.numel = last - run.begin;
    run.parameters.push_back({p.shape, p.numel, first - p.offset, first - run.begin, last - first});
  }
  return out;
}

}  // namespace tessera::zero::detail
