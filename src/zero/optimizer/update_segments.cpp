#include "optimizer/update_segments.hpp"

#include <utility>

#include "layout/group_runs.hpp"
#include "layout/unit_views.hpp"
#include "tessera/kernels/optimizer/quantized_values.hpp"

namespace tessera::zero::detail {
namespace {

void* parameter_state(SegmentSources const& sources, std::size_t state, UnitIndex unit,
                      std::size_t parameter, UnitOffset at) {
  auto const& layout = sources.states[state];
  if (auto const* const codes = sources.states.quantized(state))
    return codes->values(unit, parameter, at);
  if (layout.spec.extent == optim::Extent::elementwise) return nullptr;
  std::int64_t const first =
      layout.spec.extent == optim::Extent::per_chunk
          ? (at - sources.context.ownership.begin(unit)) / kernels::quantization_chunk
          : layout.plan->unit(unit).parameters[parameter].offset.value();
  return offset(sources.states.region(state, unit), layout.spec.dtype, first);
}

/// Elements from `begin` to `end` of a unit. Addresses of states are those of the open range of
/// `step`, and `weights` is that of its first working weight.
struct Part {
  UpdateStep const& step;
  UnitOffset begin, end;
  void* weights;
};

optim::Segments segments_of(SegmentSources const& sources, optim::OptimizerSpec const& spec,
                            Part const& part) {
  auto const& context = sources.context;
  auto const& states = sources.states;
  UnitIndex const unit = part.step.range.unit;
  auto const& layout = context.plan.unit(unit);
  auto const& storage = states.storage(part.step.storage);
  UnitOffset const region_begin = context.ownership.begin(unit);
  Dtype const gradient_dtype = sources.rules.gradient_dtype, dtype = context.config.dtype;
  optim::Segments out{{}, gradient_dtype, dtype, sources.rules.master_dtype};
  for (auto& run : group_runs(layout, part.begin, part.end, spec)) {
    std::int64_t const in_region = run.begin - region_begin;
    std::int64_t const in_range = in_region - part.step.range.begin;
    auto const values = [&](std::size_t state) {
      return offset(storage.values(state, part.step), states.spec(state).dtype, in_range);
    };
    optim::Segment s;
    s.master = values(master_weights);
    for (std::size_t k = master_weights + 1; k < states.count(); ++k) {
      bool const is_flat = states.spec(k).extent == optim::Extent::elementwise &&
                           states.spec(k).copies != optim::Copies::sharded &&
                           storage.region(k, unit);
      s.states.push_back(is_flat ? values(k) : nullptr);
    }
    s.gradient = offset(sources.gradients.region(unit), gradient_dtype, in_region);
    s.weights_out = sources.rules.separate_master ? offset(part.weights, dtype, in_range) : nullptr;
    s.numel = run.numel;
    s.group = run.group;
    s.parameters = std::move(run.parameters);
    for (auto const& parameter : s.parameters) {
      UnitOffset const first = run.begin + parameter.segment_offset;
      s.parameter_states.push_back(
          parameter_states(sources, unit, parameter_at(layout, first), first));
    }
    out.list.push_back(std::move(s));
  }
  return out;
}

void* working_weights(SegmentSources const& sources, UpdateStep const& step) {
  return offset(sources.weights.region(step.range.unit), sources.context.config.dtype,
                step.range.begin);
}

}  // namespace

optim::Segments segments_of_step(SegmentSources const& sources, optim::OptimizerSpec const& spec,
                                 UpdateStep const& step) {
  UnitOffset const begin = sources.context.ownership.begin(step.range.unit) + step.range.begin;
  void* const weights = step.queue == UpdateQueue::worker ? sources.host->weights_of(step.index)
                                                          : working_weights(sources, step);
  return segments_of(sources, spec, {step, begin, begin + step.range.numel, weights});
}

optim::Segments segments_of_shard(SegmentSources const& sources, optim::OptimizerSpec const& spec,
                                  UnitIndex unit) {
  auto const steps = sources.schedule.of(unit);
  if (steps.empty()) return {};
  UnitOffset const begin = sources.context.ownership.shard_begin(unit);
  return segments_of(sources, spec,
                     {steps.front(), begin, begin + sources.context.plan.unit(unit).shard_numel,
                      working_weights(sources, steps.front())});
}

std::vector<void*> parameter_states(SegmentSources const& sources, UnitIndex unit,
                                    std::size_t parameter, UnitOffset at) {
  std::vector<void*> out;
  for (std::size_t k = master_weights + 1; k < sources.states.count(); ++k)
    out.push_back(parameter_state(sources, k, unit, parameter, at));
  return out;
}

}  // namespace tessera::zero::detail
