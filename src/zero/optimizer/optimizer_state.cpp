#include "optimizer/optimizer_state.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "layout/group_runs.hpp"
#include "layout/unit_views.hpp"
#include "tessera/memory/work_trace.hpp"

namespace tessera::zero::detail {
namespace {

std::shared_ptr<PartitionPlan const> plan_of(PartitionPlan const& plan, optim::Extent extent) {
  if (extent == optim::Extent::elementwise) return {std::shared_ptr<PartitionPlan const>(), &plan};
  return std::make_shared<PartitionPlan const>(plan.of_extent(extent));
}

}  // namespace

OptimizerState::OptimizerState(StoreContext const& context, StageRules const& rules,
                               Inputs const& inputs, PlaceState const& place)
    : context_(context),
      rules_(rules),
      weights_(inputs.weights),
      gradients_(inputs.gradients),
      host_(inputs.host),
      host_gradients_(inputs.host_gradients) {
  set_optimizer(inputs.optimizer);
  states_.push_back(make_state({optim::master_weights_name, context.config.master_dtype},
                               memory::Purpose::master_weights, rules.separate_master, place));
  for (auto const& spec : optimizer_->spec().states)
    states_.push_back(make_state(spec, memory::Purpose::optimizer_state, true, place));
  if (context_.config.optimizer_swap) prepare_swap();
  if (summing_) prepare_sums();
  if (matrix_)
    matrices_ = std::make_unique<MatrixUpdate>(context_, *matrix_, states_[0].placement.space);
  prepare_segments();
}

/// Tiles of what is swapped or updated by the host, complete regions of the rest.
void OptimizerState::prepare_segments() {
  if (host_)
    for (std::size_t t = 0; t < host_->tiles().size(); ++t) add_tile(t, host_->tiles()[t]);
  else if (swapped_)
    for (std::size_t t = 0; t < swapped_->tiles().size(); ++t) {
      auto const& tile = swapped_->tiles()[t];
      add_tile(t, {tile.unit, tile.begin, tile.numel});
    }
  segments_.resize(context_.plan.units().size());
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    if (swapped_ || is_on_host(u)) continue;
    UnitOffset const begin = context_.ownership.begin(u);
    segments_[position(u)] = segments_of(u, begin, begin + context_.ownership.numel(u));
  }
}

void OptimizerState::add_tile(std::size_t index, Tile const& tile) {
  UnitOffset const begin = context_.ownership.begin(tile.unit) + tile.begin;
  Places const places{[&](std::size_t k, std::int64_t at) {
                        return swapped_ ? values_of_tile(index, k, at)
                                        : offset(region(k, tile.unit), spec(k).dtype, at);
                      },
                      [&](std::int64_t at) {
                        auto const dtype = context_.config.dtype;
                        return host_ ? offset(host_->weights_of(index), dtype, at - tile.begin)
                                     : offset(weights_.region(tile.unit), dtype, at);
                      }};
  tile_segments_.push_back(segments_of(tile.unit, begin, begin + tile.numel, places));
  if (sums_) tile_sums_.push_back(sums_->of_runs(tile.unit, begin, begin + tile.numel));
}

void OptimizerState::set_optimizer(optim::Optimizer const& optimizer) {
  optimizer_ = &optimizer;
  summing_ = dynamic_cast<optim::SummingOptimizer const*>(&optimizer);
  matrix_ = dynamic_cast<optim::MatrixOptimizer const*>(&optimizer);
}

OptimizerState::State OptimizerState::make_state(optim::StateSpec const& spec,
                                                 memory::Purpose purpose, bool is_allocated,
                                                 PlaceState const& place) const {
  StatePlacement placement{memory::memory_space_of(context_.compute), &context_.compute};
  if (host_)
    placement = {memory::MemorySpace::host, &host_->queue()};
  else if (place)
    placement = place(spec);
  State state{.spec = spec, .plan = plan_of(context_.plan, spec.extent), .placement = placement};
  check_placement(state);
  if (spec.encoding != optim::Encoding::values) {
    state.coded = std::make_shared<CodedState>(spec, ownership(state), state.placement.space);
    return state;
  }
  bool const is_in_memory = is_allocated && !(context_.config.optimizer_swap &&
                                              spec.extent == optim::Extent::elementwise);
  if (!is_in_memory) return state;
  auto const own = ownership(state);
  auto const bytes = [&](std::int64_t numel) {
    return static_cast<std::size_t>(numel) * size_of(spec.dtype);
  };
  state.kept_begin = own.state_numel();
  if (host_ && host_->end() < context_.plan.end_unit())
    state.kept_begin = own.state_offset(host_->end());
  state.buffer = {spec.name, purpose, bytes(state.kept_begin), state.placement.space};
  state.kept = {spec.name, purpose, bytes(own.state_numel() - state.kept_begin),
                memory::MemorySpace::device};
  return state;
}

void OptimizerState::check_placement(State const& state) const {
  auto const space = memory::memory_space_of(context_.compute);
  auto const& placement = state.placement;
  TESSERA_VALIDATE(states_.empty() || placement.queue == states_[0].placement.queue, InternalError,
                   "state ", state.spec.name,
                   " and the master weights have different queues; one kernel updates both, place "
                   "them on one queue");
  TESSERA_VALIDATE(
      host_ || (placement.space == space && memory::memory_space_of(*placement.queue) == space),
      InternalError, "state ", state.spec.name,
      " is in another memory space than its gradients; the update reads both, place it in the "
      "compute queue's memory space");
}

/// The master weights stay where they are when they are the working weights. States that are not
/// element-wise are small, and codes are a quarter of the values: they stay in memory.
void OptimizerState::prepare_swap() {
  auto const& algorithm = optimizer_->spec().algorithm;
  for (auto const& state : optimizer_->spec().states)
    TESSERA_VALIDATE(state.encoding != optim::Encoding::values || state.dtype == Dtype::fp32,
                     ConfigError, "offload_optimizer to NVMe with ", algorithm,
                     ": its states of 16 bits stay in memory; use fp32 states");
  TESSERA_VALIDATE(context_.config.stage > 0, ConfigError,
                   "offload_optimizer to NVMe needs ZeRO stage 1, 2 or 3");
  TESSERA_VALIDATE(!host_ || context_.config.master_dtype == Dtype::fp32, ConfigError,
                   "offload_optimizer from a device to NVMe with ",
                   name_of(context_.config.master_dtype),
                   " master weights, which a drive does not hold; use fp32 master weights, or "
                   "device \"cpu\"");
  std::vector<std::string> names;
  bool has_codes = false;
  for (std::size_t k = 0; k < states_.size(); ++k) {
    bool const is_swapped = is_swappable(states_[k]);
    has_codes = has_codes || states_[k].coded;
    if (is_swapped) states_[k].swapped = names.size();
    if (is_swapped) names.push_back(spec(k).name);
  }
  TESSERA_VALIDATE(
      !names.empty(), ConfigError, "offload_optimizer to NVMe with ", algorithm,
      " and fp32 weights: no state of it goes to a drive; leave offload_optimizer out, "
      "or use bf16 or fp16");
  auto swap = *context_.config.optimizer_swap;
  if (has_codes) swap.tile_numel = rounded_to_chunks(swap.tile_numel);
  if (updates_complete_units()) swap.tile_numel = std::numeric_limits<std::int64_t>::max() / 2;
  std::vector<SwappedStates::Region> regions;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
    regions.push_back({context_.plan.unit(u).name, context_.ownership.numel(u)});
  swapped_ = std::make_unique<SwappedStates>(swap, names, regions);
  TESSERA_EXPECT(!host_ || swapped_->tiles().size() == host_->tiles().size());
}

bool OptimizerState::is_swappable(State const& state) const {
  bool const is_weights = &state == &states_[master_weights] && !rules_.separate_master;
  return !is_weights && !state.coded && state.spec.extent == optim::Extent::elementwise;
}

/// Element @p at of the region, which is in tile @p t.
void* OptimizerState::values_of_tile(std::size_t t, std::size_t k, std::int64_t at) const {
  auto const& tile = swapped_->tiles()[t];
  if (auto const swapped = states_[k].swapped)
    return swapped_->values(t, *swapped) + (at - tile.begin);
  return offset(region(k, tile.unit), spec(k).dtype, at);
}

/// Every rank holds all values of a state per row, column or parameter, and saves its own shard.
Ownership OptimizerState::ownership(State const& state) const {
  bool const is_on_all = !optim::is_spread(state.spec.extent),
             is_sharded = state.spec.copies == optim::Copies::sharded;
  return {state.plan.get(), context_.ownership.rank,
          (context_.ownership.replicated && !is_sharded) || is_on_all};
}

void* OptimizerState::region(std::size_t index, UnitIndex unit) const {
  auto const& state = states_[index];
  if (index == master_weights && !rules_.separate_master) return weights_.region(unit);
  if (state.coded) return state.coded->codes(unit);
  if (state.swapped) return swapped_->region(*state.swapped, unit);
  std::int64_t const at = ownership(state).state_offset(unit);
  return at < state.kept_begin || state.kept.bytes() == 0
             ? offset(state.buffer.data(), state.spec.dtype, at)
             : offset(state.kept.data(), state.spec.dtype, at - state.kept_begin);
}

void* OptimizerState::shard(std::size_t index, UnitIndex unit) const {
  auto const& state = states_[index];
  bool const is_weights = index == master_weights && !rules_.separate_master;
  void* const begin = is_weights ? weights_.settled_region(unit) : region(index, unit);
  return offset(begin, state.spec.dtype, ownership(state).shard_offset(unit));
}

void OptimizerState::prepare_sums() {
  sums_ = std::make_unique<ParameterSumBuffer>(context_, *summing_, states_[0].placement.space);
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    UnitOffset const begin = context_.ownership.begin(u), shard = context_.ownership.shard_begin(u);
    UnitOffset const region_end = begin + context_.ownership.numel(u),
                     shard_end = shard + context_.plan.unit(u).shard_numel;
    unit_sums_.push_back({segments_of(u, shard, shard_end), sums_->of_runs(u, shard, shard_end),
                          sums_->of_runs(u, begin, region_end), complete_parameters(u)});
  }
}

std::vector<optim::CompleteParameter> OptimizerState::complete_parameters(UnitIndex unit) const {
  std::vector<optim::CompleteParameter> out;
  auto const& parameters = context_.plan.unit(unit).parameters;
  for (std::size_t p = 0; p < parameters.size(); ++p)
    out.push_back({parameters[p].shape, parameter_states(unit, p, parameters[p].offset),
                   sums_->of_parameter(unit, p)});
  return out;
}

std::vector<void*> OptimizerState::parameter_states(UnitIndex unit, std::size_t parameter,
                                                    UnitOffset at) const {
  std::vector<void*> out;
  for (std::size_t k = master_weights + 1; k < states_.size(); ++k)
    out.push_back(parameter_state(k, unit, parameter, at));
  return out;
}

void* OptimizerState::parameter_state(std::size_t index, UnitIndex unit, std::size_t parameter,
                                      UnitOffset at) const {
  auto const& state = states_[index];
  if (state.coded) return state.coded->values(unit, parameter, at);
  if (state.spec.extent == optim::Extent::elementwise) return nullptr;
  std::int64_t const first =
      state.spec.extent == optim::Extent::per_chunk
          ? (at - context_.ownership.begin(unit)) / kernels::quantization_chunk
          : plan(index).unit(unit).parameters[parameter].offset.value();
  return offset(region(index, unit), state.spec.dtype, first);
}

std::size_t OptimizerState::absmax_of(std::size_t state) const {
  auto const name = optim::absmax_state(spec(state).name).name;
  auto const found = std::find_if(states_.begin(), states_.end(),
                                  [&](State const& s) { return s.spec.name == name; });
  TESSERA_EXPECT(found != states_.end(), "a state in codes has no state ", name);
  return static_cast<std::size_t>(found - states_.begin());
}

optim::Segments OptimizerState::segments_of(UnitIndex unit, UnitOffset begin,
                                            UnitOffset end) const {
  return segments_of(
      unit, begin, end,
      {[&](std::size_t state, std::int64_t at) {
         return swapped_ && swapped_->has_tile(unit)
                    ? values_of_tile(swapped_->first_tile(unit), state, at)
                    : offset(region(state, unit), spec(state).dtype, at);
       },
       [&](std::int64_t at) { return offset(weights_.region(unit), context_.config.dtype, at); }});
}

optim::Segments OptimizerState::segments_of(UnitIndex unit, UnitOffset begin, UnitOffset end,
                                            Places const& places) const {
  UnitOffset const region_begin = context_.ownership.begin(unit);
  optim::Segments out{
      {}, rules_.gradient_dtype, context_.config.dtype, context_.config.master_dtype};
  for (auto& run : group_runs(context_.plan.unit(unit), begin, end, optimizer_->spec())) {
    std::int64_t const at = run.begin - region_begin;
    optim::Segment s;
    s.master = places.values(master_weights, at);
    for (std::size_t k = master_weights + 1; k < states_.size(); ++k) {
      bool const is_flat = spec(k).extent == optim::Extent::elementwise &&
                           spec(k).copies != optim::Copies::sharded && region(k, unit);
      s.states.push_back(is_flat ? places.values(k, at) : nullptr);
    }
    s.gradient = offset(gradients_.region(unit), rules_.gradient_dtype, at);
    s.weights_out = rules_.separate_master ? places.weights(at) : nullptr;
    s.numel = run.numel;
    s.group = run.group;
    s.parameters = std::move(run.parameters);
    for (auto const& part : s.parameters) {
      UnitOffset const first = run.begin + part.segment_offset;
      s.parameter_states.push_back(
          parameter_states(unit, parameter_at(context_.plan.unit(unit), first), first));
    }
    out.list.push_back(std::move(s));
  }
  return out;
}

std::vector<kernels::GradientRun> OptimizerState::gradient_shards() const {
  std::vector<kernels::GradientRun> runs;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
    runs.push_back(
        {offset(gradients_.region(u), rules_.gradient_dtype, context_.ownership.shard_offset(u)),
         context_.plan.unit(u).shard_numel});
  return runs;
}

template <class Work>
void OptimizerState::on_update_queue(Work const& work) const {
  auto& queue = host_ ? context_.compute : *states_[master_weights].placement.queue;
  bool const is_compute = &queue == &context_.compute;
  if (!is_compute) queue.wait(context_.compute.record());
  work(queue);
  if (!is_compute) context_.compute.wait(queue.record());
}

template <class Work>
void OptimizerState::on_sum_queue(Work const& work) const {
  if (host_) return work(host_->queue());
  on_update_queue(work);
}

/// Each rank sums its own shards, also where it updates all elements: the same bits in every stage.
void OptimizerState::sum(optim::StepControl const& control) const {
  if (!summing_) return;
  if (host_) host_gradients_->order_all_before(host_->queue());
  on_sum_queue([&](memory::Queue& queue) { sums_->clear(queue); });
  for (int round = 0; round < summing_->rounds(); ++round) {
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) sum_unit(round, u, control);
    on_sum_queue([&](memory::Queue& queue) {
      sums_->add_over_ranks(queue, round);
      for (auto const& unit : unit_sums_)
        summing_->update_states(queue, round, unit.parameters, control);
    });
  }
}

void OptimizerState::sum_unit(int round, UnitIndex unit, optim::StepControl const& control) const {
  auto const& sums = unit_sums_[position(unit)];
  weights_.open_region(unit);
  on_sum_queue([&](memory::Queue& queue) {
    if (!swapped_ || !swapped_->has_tile(unit))
      return summing_->sum(queue, round, sums.shard, control, sums.of_shard);
    std::size_t const tile = swapped_->first_tile(unit);
    swapped_->acquire(queue, tile);
    summing_->sum(queue, round, sums.shard, control, sums.of_shard);
    swapped_->release(queue, tile, SwappedStates::Values::unchanged);
  });
  weights_.close_unchanged(unit);
}

void OptimizerState::update(UnitIndex unit, optim::StepControl const& control) const {
  if (is_on_host(unit)) return host_->run(unit, work_of_host(control));
  on_update_queue([&](memory::Queue& queue) {
    if (!swapped_) {
      auto const* const sums = summing_ ? &unit_sums_[position(unit)].of_region : nullptr;
      return update(queue, unit, segments_[position(unit)], sums, control);
    }
    for (auto t = swapped_->first_tile(unit); t < swapped_->end_tile(unit); ++t)
      update_tile(queue, t, control);
  });
}

HostUpdate::Work OptimizerState::work_of_host(optim::StepControl const& control) const {
  return [this, control](memory::Queue& queue, std::size_t tile) {
    host_gradients_->order_before(queue, tile);
    update_tile(queue, tile, control);
    host_gradients_->keep_until(tile, queue.record());
  };
}

void OptimizerState::update_tile(memory::Queue& queue, std::size_t tile,
                                 optim::StepControl const& control) const {
  UnitIndex const unit = host_ ? host_->tiles()[tile].unit : swapped_->tiles()[tile].unit;
  if (swapped_) swapped_->acquire(queue, tile);
  update(queue, unit, tile_segments_[tile], sums_ ? &tile_sums_[tile] : nullptr, control);
  if (swapped_) swapped_->release(queue, tile);
}

void OptimizerState::update(memory::Queue& queue, UnitIndex unit, optim::Segments const& segments,
                            optim::ParameterSums const* sums,
                            optim::StepControl const& control) const {
  if (auto* const trace = memory::WorkTrace::active())
    trace->add(queue, {.kind = memory::PlannedWork::Kind::update,
                       .bytes = update_bytes(segments, optimizer_->spec())});
  if (matrix_)
    matrices_->update(queue, *matrix_, matrix_region(unit, segments), control);
  else if (summing_)
    summing_->update_with(queue, segments, control, *sums);
  else
    optimizer_->update(queue, segments, control);
}

MatrixUpdate::Region OptimizerState::matrix_region(UnitIndex unit,
                                                   optim::Segments const& segments) const {
  bool const has_tile = swapped_ && swapped_->has_tile(unit);
  void const* const master = has_tile
                                 ? values_of_tile(swapped_->first_tile(unit), master_weights, 0)
                                 : region(master_weights, unit);
  return {unit, segments, static_cast<float const*>(master)};
}

void OptimizerState::round_weights(UnitIndex unit) const {
  if (!rules_.separate_master) return;
  auto const dtype = spec(master_weights).dtype;
  if (is_on_host(unit))
    return host_->run(unit, [&](memory::Queue& queue, std::size_t index) {
      auto const& tile = host_->tiles()[index];
      void* const masters = offset(region(master_weights, tile.unit), dtype, tile.begin);
      kernels::cast(queue, {host_->weights_of(index), context_.config.dtype, {tile.numel}},
                    memory::TensorView{masters, dtype, {tile.numel}});
    });
  std::int64_t const n = context_.plan.unit(unit).shard_numel;
  void* const weights =
      offset(weights_.region(unit), context_.config.dtype, context_.ownership.shard_offset(unit));
  kernels::cast(context_.compute, {weights, context_.config.dtype, {n}},
                memory::TensorView{shard(master_weights, unit), dtype, {n}});
}

bool OptimizerState::is_copied(State const& state, UnitIndex unit) const {
  return state.spec.dtype != Dtype::fp32 || space_of(state, unit) == memory::MemorySpace::device;
}

memory::MemorySpace OptimizerState::space_of(State const& state, UnitIndex unit) const {
  bool const is_weights = &state == &states_[master_weights] && !rules_.separate_master;
  if (is_weights && weights_.report().host.bytes > 0) return memory::MemorySpace::host;
  return host_ && !host_->has(unit) ? memory::MemorySpace::device : state.placement.space;
}

bool OptimizerState::has_copies(State const& state) const {
  return is_copied(state, UnitIndex(static_cast<int>(context_.plan.units().size()) - 1));
}

bool OptimizerState::has_host_copies() const {
  return std::all_of(states_.begin(), states_.end(),
                     [&](State const& state) { return is_copied(state, first_unit); });
}

void OptimizerState::release_copies() {
  if (has_host_copies()) return;
  for (auto& state : states_)
    if (state.placement.space == memory::MemorySpace::host) state.host_copy = {};
}

std::vector<float*> OptimizerState::host_shards(std::size_t index) {
  auto& state = states_[index];
  if (has_copies(state) && state.host_copy.bytes() == 0)
    state.host_copy = {"host copy of a state", memory::Purpose::data,
                       static_cast<std::size_t>(state.plan->partition_numel()) * sizeof(float),
                       memory::MemorySpace::host};
  std::vector<float*> out;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
    out.push_back(is_copied(state, u) ? static_cast<float*>(state.host_copy.data()) +
                                            state.plan->unit(u).partition_offset.value()
                                      : static_cast<float*>(shard(index, u)));
  return out;
}

void OptimizerState::copy_shards(std::size_t index, Direction direction) {
  auto& state = states_[index];
  if (!has_copies(state)) return;
  auto const host = host_shards(index);
  if (state.coded) {
    auto& queue = *state.placement.queue;
    std::size_t const absmax = absmax_of(index);
    if (direction == Direction::to_state)
      return state.coded->write(queue, host_shards(absmax), host);
    copy_shards(absmax, direction);
    return state.coded->read(queue, host_shards(absmax), host);
  }
  std::vector<ShardCopy> copies;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
    if (is_copied(state, u))
      copies.push_back({host[position(u)],
                        {shard(index, u), state.spec.dtype, {state.plan->unit(u).shard_numel}},
                        space_of(state, u)});
  zero::detail::copy_shards(host_ ? context_.compute : *state.placement.queue, copies, direction);
}

void OptimizerState::replicate(What what) const {
  if (!rules_.reduces) return;
  auto const after = context_.compute.record();
  std::optional<comm::Pending> last;
  std::size_t const count = what == What::master_weights ? master_weights + 1 : states_.size();
  for (std::size_t k = 0; k < count; ++k) {
    auto const& state = states_[k];
    if (state.buffer.bytes() == 0 || !ownership(state).replicated) continue;
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
      auto const& layout = state.plan->unit(u);
      memory::TensorView const all(region(k, u), state.spec.dtype, {layout.padded_numel});
      for (auto const& blocks :
           cut_blocks(layout, context_.plan.ranks(), context_.config.allgather_bucket_size))
        last = context_.comm.all_gather(all, blocks, after);
    }
  }
  if (last) context_.comm.wait(*last);
  for (std::size_t k = 0; k < count; ++k)
    if (auto const& coded = states_[k].coded)
      coded->replicate(context_.comm, context_.config.allgather_bucket_size, after);
}

std::size_t OptimizerState::host_bytes() const {
  std::size_t sum = 0;
  for (auto const& state : states_)
    if (host_) sum += state.coded ? state.coded->bytes() : state.buffer.bytes();
  return sum + swap_buffer_bytes();
}

}  // namespace tessera::zero::detail
