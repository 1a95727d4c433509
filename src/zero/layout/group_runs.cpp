#include "layout/group_runs.hpp"

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

std::size_t update_bytes(optim::Segments const& segments, optim::OptimizerSpec const& spec) {
  std::size_t sum = 0;
  for (auto const& s : segments.list) {
    std::size_t each = size_of(segments.gradient_dtype) + 2 * size_of(segments.master_dtype) +
                       (s.weights_out ? size_of(segments.weights_dtype) : 0);
    for (std::size_t k = 0; k < s.states.size(); ++k)
      if (s.states[k]) each += 2 * size_of(spec.states[k].dtype);
    sum += static_cast<std::size_t>(s.numel) * each;
  }
  return sum;
}

}  // namespace tessera::zero::detail
