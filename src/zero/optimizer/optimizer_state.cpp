#include "optimizer/optimizer_state.hpp"

#include <optional>
#include <utility>

#include "layout/group_runs.hpp"
#include "layout/unit_views.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/work_trace.hpp"

namespace tessera::zero::detail {
OptimizerState::Setup OptimizerState::setup(StoreContext const& context, StageRules const& rules,
                                            Inputs const& inputs) {
  auto* const host = inputs.host;
  StatePlacement const on_device{memory::memory_space_of(context.compute), &context.compute};
  return {state_layouts(context, rules, inputs.optimizer.spec()),
          host ? StatePlacement{memory::MemorySpace::host, &host->queue()} : on_device,
          tiled_units(context, inputs.optimizer, host ? host->end() : first_unit)};
}

OptimizerState::OptimizerState(StoreContext const& context, StageRules const& rules,
                               Inputs const& inputs, Setup setup)
    : context_(context),
      rules_(rules),
      weights_(inputs.weights),
      gradients_(inputs.gradients),
      host_(inputs.host),
      host_gradients_(inputs.host_gradients),
      schedule_(region_numel(context_, context_.plan.end_unit()), setup.tiled),
      states_(context_, std::move(setup.layouts), weights_, setup.tiled, setup.placement),
      shards_(states_, context_.compute),
      rule_(make_update_rule(sources(), inputs.optimizer)) {
  for (auto const& step : schedule_.steps())
    segments_.push_back(segments_of_step(sources(), rule_->spec(), step));
  if (!context_.config.hash_states) return;
  std::vector<Dtype> dtypes;
  for (std::size_t k = 0; k < states_.count(); ++k) dtypes.push_back(states_.spec(k).dtype);
  hashes_ = std::make_unique<StateHashes>(schedule_, std::move(dtypes), context_.compute);
}

SegmentSources OptimizerState::sources() const {
  return {context_, rules_, states_, schedule_, weights_, gradients_, host_};
}

std::vector<kernels::GradientRun> OptimizerState::gradient_shards() const {
  std::vector<kernels::GradientRun> runs;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
    runs.push_back(
        {offset(gradients_.region(u), rules_.gradient_dtype, context_.ownership.shard_offset(u)),
         context_.plan.unit(u).shard_numel});
  return runs;
}

void OptimizerState::compute_norm(NormAndOverflow& decision,
                                  kernels::GradientLimits const& limits) const {
  if (host_gradients_) return decision.compute(*host_gradients_, limits);
  decision.compute(gradient_shards(), rules_.gradient_dtype, limits);
}

void OptimizerState::sum(optim::StepControl const& device, optim::StepControl const& host) const {
  if (rule_->rounds() == 0) return;
  auto const& control = sum_queue() == UpdateQueue::worker ? host : device;
  if (host_) host_gradients_->order_all_before(host_->queue());
  auto& queue = queue_of(sum_queue());
  rule_->clear_sums(queue);
  for (int round = 0; round < rule_->rounds(); ++round) {
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) sum_unit(round, u, control);
    rule_->complete_sums(queue, round, control);
  }
}

void OptimizerState::sum_unit(int round, UnitIndex unit, optim::StepControl const& control) const {
  auto& storage = states_.storage(unit);
  auto& queue = queue_of(sum_queue());
  weights_.open_region(unit);
  for (auto const& step : schedule_.of(unit)) storage.open(queue, step);
  rule_->sum(queue, round, unit, control);
  for (auto const& step : schedule_.of(unit))
    storage.close(queue, step, StateStorage::Values::unchanged);
  weights_.close_unchanged(unit);
}

void OptimizerState::update(UnitIndex unit, optim::StepControl const& control) const {
  if (schedule_.queue(unit) == UpdateQueue::worker) return host_->run(unit, work_of_host(control));
  for (auto const& step : schedule_.of(unit)) run_step(context_.compute, step, control);
}

void OptimizerState::start_updates(optim::StepControl const& control) const {
  host_->start_all(work_of_host(control));
}

HostUpdate::Work OptimizerState::work_of_host(optim::StepControl const& control) const {
  return [this, control](memory::Queue& queue, std::size_t tile) {
    host_gradients_->order_before(queue, tile);
    run_step(queue, schedule_[tile], control);
    host_gradients_->keep_until(tile, queue.record());
  };
}

void OptimizerState::run_step(memory::Queue& queue, UpdateStep const& step,
                              optim::StepControl const& control) const {
  auto& storage = states_.storage(step.storage);
  auto const& segments = segments_[step.index];
  storage.open(queue, step);
  if (hashes_) hashes_->compare(queue, step, segments);
  if (auto* const trace = memory::WorkTrace::active())
    trace->add(queue, {.kind = memory::PlannedWork::Kind::update,
                       .bytes = update_bytes(segments, rule_->spec())});
  rule_->update(queue, {step, segments, storage.values(master_weights, step)}, control);
  if (hashes_) hashes_->keep(queue, step, segments);
  storage.close(queue, step, StateStorage::Values::changed);
}

void OptimizerState::compare_hashes(UnitIndex unit) const {
  if (!hashes_) return;
  weights_.open_region(unit);
  for (auto const& step : schedule_.of(unit)) {
    auto& storage = states_.storage(step.storage);
    auto& queue = queue_of(step.queue);
    storage.open(queue, step);
    hashes_->compare(queue, step, segments_[step.index]);
    storage.close(queue, step, StateStorage::Values::unchanged);
  }
  weights_.close_unchanged(unit);
}

void OptimizerState::round_weights(UnitIndex unit) const {
  if (!rules_.separate_master) return;
  weights_.open_region(unit);
  auto const masters_dtype = states_.spec(master_weights).dtype, dtype = context_.config.dtype;
  if (schedule_.queue(unit) == UpdateQueue::worker)
    return host_->run(unit, [&](memory::Queue& queue, std::size_t tile) {
      auto const& range = schedule_[tile].range;
      void* const masters =
          offset(states_.region(master_weights, range.unit), masters_dtype, range.begin);
      kernels::cast(queue, {host_->weights_of(tile), dtype, {range.numel}},
                    memory::TensorView{masters, masters_dtype, {range.numel}});
    });
  std::int64_t const n = context_.plan.unit(unit).shard_numel;
  void* const weights = offset(weights_.region(unit), dtype, context_.ownership.shard_offset(unit));
  kernels::cast(context_.compute, {weights, dtype, {n}},
                memory::TensorView{states_.shard(master_weights, unit), masters_dtype, {n}});
}

void OptimizerState::replicate(What what) const {
  if (!rules_.reduces) return;
  auto const after = context_.compute.record();
  std::size_t const count = what == What::master_weights ? master_weights + 1 : states_.count();
  std::optional<comm::Pending> last;
  for (std::size_t k = 0; k < count; ++k)
    if (auto const pending = gather_values(k, after)) last = pending;
  if (last) context_.comm.wait(*last);
  for (std::size_t k = 0; k < count; ++k)
    if (auto* const codes = states_.quantized(k))
      codes->replicate(context_.comm, context_.config.allgather_bucket_size, after);
}

std::optional<comm::Pending> OptimizerState::gather_values(std::size_t state,
                                                           memory::Event const& after) const {
  auto const& layout = states_[state];
  bool const has_values = layout.home == StateHome::memory && layout.ownership.replicated;
  std::optional<comm::Pending> last;
  for (UnitIndex u = first_unit; has_values && u < context_.plan.end_unit(); ++u) {
    auto const& unit = layout.plan->unit(u);
    memory::TensorView const all(states_.region(state, u), layout.spec.dtype, {unit.padded_numel});
    for (auto const& shards :
         cut_blocks(unit, context_.plan.ranks(), context_.config.allgather_bucket_size))
      last = context_.comm.all_gather(all, shards, after);
  }
  return last;
}

}  // namespace tessera::zero::detail
