#include "detail/optimizer_state.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "detail/group_runs.hpp"
#include "detail/half_values.hpp"
#include "detail/unit_views.hpp"

namespace tessera::zero::detail {
namespace {

/// The plan itself for element-wise states.
std::shared_ptr<PartitionPlan const> plan_of(PartitionPlan const& plan, optim::Extent extent) {
  if (extent == optim::Extent::elementwise) return {std::shared_ptr<PartitionPlan const>(), &plan};
  return std::make_shared<PartitionPlan const>(plan.of_extent(extent));
}

}  // namespace

OptimizerState::OptimizerState(StoreContext const& context, StageRules const& rules,
                               WeightStore& weights, GradientFlow& gradients,
                               optim::Optimizer const& optimizer, PlaceState const& place)
    : context_(context), rules_(rules), weights_(weights), gradients_(gradients) {
  set_optimizer(optimizer);
  states_.push_back(make_state({optim::master_weights_name, context.config.master_dtype},
                               memory::Purpose::master_weights, rules.separate_master, place));
  for (auto const& spec : optimizer.spec().states)
    states_.push_back(make_state(spec, memory::Purpose::optimizer_state, true, place));
  if (context_.config.optimizer_swap) prepare_swap();
  for (UnitIndex u = first_unit; segments_are_of_units() && u < context_.plan.end_unit(); ++u) {
    UnitOffset const begin = context_.ownership.begin(u);
    segments_.push_back(segments_of(u, begin, begin + context_.ownership.numel(u)));
  }
  if (summing_) prepare_sums();
  if (matrix_) prepare_matrices();
}

void OptimizerState::set_optimizer(optim::Optimizer const& optimizer) {
  optimizer_ = &optimizer;
  summing_ = dynamic_cast<optim::SummingOptimizer const*>(&optimizer);
  matrix_ = dynamic_cast<optim::MatrixOptimizer const*>(&optimizer);
}

OptimizerState::State OptimizerState::make_state(optim::StateSpec const& spec,
                                                 memory::Purpose purpose, bool is_allocated,
                                                 PlaceState const& place) const {
  StatePlacement const usual{memory::memory_space_of(context_.compute), &context_.compute};
  State state{spec, plan_of(context_.plan, spec.extent), place ? place(spec) : usual, {}, nullptr,
              {}};
  check_placement(state);
  if (spec.encoding != optim::Encoding::values) {
    state.coded = std::make_shared<CodedState>(spec, ownership(state), state.placement.space);
    return state;
  }
  bool const is_in_memory = is_allocated && !(context_.config.optimizer_swap &&
                                              spec.extent == optim::Extent::elementwise);
  std::int64_t const numel = is_in_memory ? ownership(state).state_numel() : 0;
  state.buffer = {spec.name, purpose, static_cast<std::size_t>(numel) * size_of(spec.dtype),
                  state.placement.space};
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
      placement.space == space && memory::memory_space_of(*placement.queue) == space, InternalError,
      "state ", state.spec.name,
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
  if (updates_complete_units()) return;
  for (std::size_t t = 0; t < swapped_->tiles().size(); ++t) {
    auto const& tile = swapped_->tiles()[t];
    UnitOffset const begin = context_.ownership.begin(tile.unit) + tile.begin;
    segments_.push_back(
        segments_of(tile.unit, begin, begin + tile.numel,
                    [&](std::size_t k, std::int64_t at) { return values_of_tile(t, k, at); }));
  }
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
  bool const is_on_all = !optim::is_spread(state.spec.extent);
  return {state.plan.get(), context_.ownership.rank, context_.ownership.replicated || is_on_all};
}

void* OptimizerState::region(std::size_t index, UnitIndex unit) const {
  auto const& state = states_[index];
  if (index == master_weights && !rules_.separate_master) return weights_.region(unit);
  if (state.coded) return state.coded->codes(unit);
  if (state.swapped) return swapped_->region(*state.swapped, unit);
  return offset(state.buffer.data(), state.spec.dtype, ownership(state).state_offset(unit));
}

void* OptimizerState::shard(std::size_t index, UnitIndex unit) const {
  auto const& state = states_[index];
  bool const is_weights = index == master_weights && !rules_.separate_master;
  void* const begin = is_weights ? weights_.settled_region(unit) : region(index, unit);
  return offset(begin, state.spec.dtype, ownership(state).shard_offset(unit));
}

void OptimizerState::prepare_sums() {
  std::int64_t end = 0;
  for (int round = 0; round < summing_->rounds(); ++round) {
    round_begins_.push_back(end);
    auto& of_units = sum_offsets_.emplace_back();
    for (auto const& unit : context_.plan.units()) {
      auto& of_unit = of_units.emplace_back();
      for (auto const& parameter : unit.parameters) {
        of_unit.push_back(end);
        end += summing_->sum_count(round, parameter.shape);
      }
    }
  }
  round_begins_.push_back(end);
  sums_ =
      CommBuffer(context_.comm, "sums of parameters", memory::Purpose::workspace, Dtype::fp64, end);
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    UnitOffset const begin = context_.ownership.begin(u), shard = context_.ownership.shard_begin(u);
    UnitOffset const region_end = begin + context_.ownership.numel(u),
                     shard_end = shard + context_.plan.unit(u).shard_numel;
    unit_sums_.push_back({segments_of(u, shard, shard_end), sums_of(u, shard, shard_end),
                          sums_of(u, begin, region_end), complete_parameters(u)});
  }
}

std::vector<double*> OptimizerState::sums_of_rounds(UnitIndex unit, std::size_t parameter) const {
  std::vector<double*> out;
  for (auto const& of_units : sum_offsets_)
    out.push_back(static_cast<double*>(sums_.at(of_units[position(unit)][parameter])));
  return out;
}

/// In the order of segments_of().
optim::ParameterSums OptimizerState::sums_of(UnitIndex unit, UnitOffset begin,
                                             UnitOffset end) const {
  auto const& layout = context_.plan.unit(unit);
  optim::ParameterSums out;
  out.of.resize(sum_offsets_.size());
  for (auto const& run : group_runs(layout, begin, end, optimizer_->spec())) {
    for (auto& of_round : out.of) of_round.emplace_back();
    for (auto const& part : run.parameters) {
      auto const sums = sums_of_rounds(unit, parameter_at(layout, run.begin + part.segment_offset));
      for (std::size_t round = 0; round < sums.size(); ++round)
        out.of[round].back().push_back(sums[round]);
    }
  }
  return out;
}

std::vector<optim::CompleteParameter> OptimizerState::complete_parameters(UnitIndex unit) const {
  std::vector<optim::CompleteParameter> out;
  auto const& parameters = context_.plan.unit(unit).parameters;
  for (std::size_t p = 0; p < parameters.size(); ++p)
    out.push_back({parameters[p].shape, parameter_states(unit, p, parameters[p].offset),
                   sums_of_rounds(unit, p)});
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
  return segments_of(unit, begin, end, [&](std::size_t state, std::int64_t at) {
    if (swapped_ && swapped_->has_tile(unit))
      return values_of_tile(swapped_->first_tile(unit), state, at);
    return offset(region(state, unit), spec(state).dtype, at);
  });
}

optim::Segments OptimizerState::segments_of(UnitIndex unit, UnitOffset begin, UnitOffset end,
                                            ValuesAt const& values) const {
  UnitOffset const region_begin = context_.ownership.begin(unit);
  optim::Segments out{
      {}, rules_.gradient_dtype, context_.config.dtype, context_.config.master_dtype};
  for (auto& run : group_runs(context_.plan.unit(unit), begin, end, optimizer_->spec())) {
    std::int64_t const at = run.begin - region_begin;
    optim::Segment s;
    s.master = values(master_weights, at);
    for (std::size_t k = master_weights + 1; k < states_.size(); ++k) {
      bool const is_flat = spec(k).extent == optim::Extent::elementwise && region(k, unit);
      s.states.push_back(is_flat ? values(k, at) : nullptr);
    }
    s.gradient = offset(gradients_.region(unit), rules_.gradient_dtype, at);
    s.weights_out =
        rules_.separate_master ? offset(weights_.region(unit), context_.config.dtype, at) : nullptr;
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
  auto& queue = *states_[master_weights].placement.queue;
  bool const is_compute = &queue == &context_.compute;
  if (!is_compute) queue.wait(context_.compute.record());
  work(queue);
  if (!is_compute) context_.compute.wait(queue.record());
}

/// Each rank sums its own shards, also where it updates all elements: the same bits in every stage.
void OptimizerState::sum(optim::StepControl const& control) const {
  if (!summing_) return;
  on_update_queue([&](memory::Queue& queue) { memory::zero(queue, sums_.at(0), sums_.bytes()); });
  for (int round = 0; round < summing_->rounds(); ++round) {
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) sum_unit(round, u, control);
    on_update_queue([&](memory::Queue& queue) {
      add_over_ranks(queue, round);
      for (auto const& unit : unit_sums_)
        summing_->update_states(queue, round, unit.parameters, control);
    });
  }
}

void OptimizerState::sum_unit(int round, UnitIndex unit, optim::StepControl const& control) const {
  auto const& sums = unit_sums_[position(unit)];
  weights_.open_region(unit);
  on_update_queue([&](memory::Queue& queue) {
    with_tile(queue, unit, SwappedStates::Values::unchanged,
              [&] { summing_->sum(queue, round, sums.shard, control, sums.of_shard); });
  });
  weights_.close_unchanged(unit);
}

/// Calls @p work while the states of a complete unit are in memory.
template <class Work>
void OptimizerState::with_tile(memory::Queue& queue, UnitIndex unit, SwappedStates::Values values,
                               Work const& work) const {
  if (!swapped_ || !swapped_->has_tile(unit)) return work();
  std::size_t const tile = swapped_->first_tile(unit);
  swapped_->acquire(queue, tile);
  work();
  swapped_->release(queue, tile, values);
}

void OptimizerState::add_over_ranks(memory::Queue& queue, int round) const {
  if (!rules_.reduces) return;
  auto const index = static_cast<std::size_t>(round);
  std::int64_t const begin = round_begins_[index], end = round_begins_[index + 1];
  auto const complete =
      context_.comm.all_reduce(sums_.view(begin, end - begin), comm::ReduceOp::sum, queue.record());
  complete.order_before(queue);
  if (memory::memory_space_of(queue) == memory::MemorySpace::host) context_.comm.wait(complete);
}

void OptimizerState::update(UnitIndex unit, optim::StepControl const& control) const {
  auto const index = position(unit);
  on_update_queue([&](memory::Queue& queue) {
    if (!segments_are_of_units()) return update_tiles(queue, unit, control);
    with_tile(queue, unit, SwappedStates::Values::changed, [&] {
      if (matrix_)
        update_matrices(queue, unit, control);
      else if (summing_)
        summing_->update_with(queue, segments_[index], control, unit_sums_[index].of_region);
      else
        optimizer_->update(queue, segments_[index], control);
    });
  });
}

void OptimizerState::update_tiles(memory::Queue& queue, UnitIndex unit,
                                  optim::StepControl const& control) const {
  for (std::size_t t = swapped_->first_tile(unit); t < swapped_->end_tile(unit); ++t) {
    swapped_->acquire(queue, t);
    optimizer_->update(queue, segments_[t], control);
    swapped_->release(queue, t);
  }
}

void OptimizerState::prepare_matrices() {
  std::int64_t workspace = 0;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    auto& of_unit = matrices_.emplace_back();
    UnitOffset const begin = context_.ownership.begin(u);
    for (auto const& run : group_runs(context_.plan.unit(u), begin,
                                      begin + context_.ownership.numel(u), optimizer_->spec()))
      for (auto const& part : run.parameters) {
        if (!matrix_->takes_matrix(part)) continue;
        std::int64_t const at = run.begin.value() + part.segment_offset;
        of_unit.push_back({at - part.parameter_offset, part.shape});
        workspace = std::max(workspace, matrix_->workspace(part.shape));
      }
  }
  directions_ = CommBuffer(context_.comm, "directions of a unit", memory::Purpose::workspace,
                           Dtype::fp32, context_.plan.largest_unit());
  matrix_workspace_ = {"workspace of a matrix", memory::Purpose::workspace,
                       static_cast<std::size_t>(workspace) * sizeof(float),
                       memory::memory_space_of(context_.compute)};
}

/// Ranks that share a matrix complete it each: the same bits in every stage.
void OptimizerState::update_matrices(memory::Queue& queue, UnitIndex unit,
                                     optim::StepControl const& control) const {
  auto const& layout = context_.plan.unit(unit);
  auto const& segments = segments_[position(unit)];
  bool const has_tile = swapped_ && swapped_->has_tile(unit);
  auto const* const master = static_cast<float const*>(
      has_tile ? values_of_tile(swapped_->first_tile(unit), master_weights, 0)
               : region(master_weights, unit));
  optim::Directions directions;
  for (auto const& s : segments.list)
    directions.push_back(static_cast<float*>(directions_.at(
        context_.ownership.begin(unit).value() + (static_cast<float const*>(s.master) - master))));
  matrix_->advance(queue, segments, control, directions);
  if (!context_.ownership.replicated && rules_.reduces) {
    auto const after = queue.record();
    std::optional<comm::Pending> last;
    for (auto const& blocks :
         cut_blocks(layout, context_.plan.ranks(), context_.config.allgather_bucket_size))
      last = context_.comm.all_gather(directions_.view(0, layout.padded_numel), blocks, after);
    last->order_before(queue);
    if (memory::memory_space_of(queue) == memory::MemorySpace::host) context_.comm.wait(*last);
  }
  for (auto const& matrix : matrices_[position(unit)])
    matrix_->complete(queue, static_cast<float*>(directions_.at(matrix.offset)), matrix.shape,
                      static_cast<float*>(matrix_workspace_.data()));
  matrix_->update_with(queue, segments, control, directions);
}

void OptimizerState::round_weights(UnitIndex unit) const {
  if (!rules_.separate_master) return;
  std::int64_t const n = context_.plan.unit(unit).shard_numel;
  void* const weights = offset(weights_.settled_region(unit), context_.config.dtype,
                               context_.ownership.shard_offset(unit));
  kernels::cast(context_.compute, {weights, context_.config.dtype, {n}},
                memory::TensorView{shard(master_weights, unit), spec(master_weights).dtype, {n}});
}

std::vector<float*> OptimizerState::host_shards(std::size_t index) {
  auto& state = states_[index];
  bool const is_copy = is_copied(state);
  if (is_copy && state.host_copy.bytes() == 0)
    state.host_copy = {"host copy of a state", memory::Purpose::data,
                       static_cast<std::size_t>(state.plan->partition_numel()) * sizeof(float),
                       memory::MemorySpace::host};
  std::vector<float*> out;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
    out.push_back(is_copy ? static_cast<float*>(state.host_copy.data()) +
                                state.plan->unit(u).partition_offset.value()
                          : static_cast<float*>(shard(index, u)));
  return out;
}

void OptimizerState::copy_shards(std::size_t index, Direction direction) {
  auto& state = states_[index];
  if (!is_copied(state)) return;
  auto const host = host_shards(index);
  auto& queue = *state.placement.queue;
  if (state.coded) {
    std::size_t const absmax = absmax_of(index);
    if (direction == Direction::to_state)
      return state.coded->write(queue, host_shards(absmax), host);
    copy_shards(absmax, direction);
    return state.coded->read(queue, host_shards(absmax), host);
  }
  if (state.spec.dtype != Dtype::fp32) return copy_half_shards(index, direction);
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    auto const bytes = static_cast<std::size_t>(state.plan->unit(u).shard_numel) * sizeof(float);
    float* const here = host[position(u)];
    if (direction == Direction::to_host)
      memory::copy(queue, here, shard(index, u), bytes);
    else
      memory::copy(queue, shard(index, u), here, bytes);
  }
  queue.record().wait("copies of the optimizer state", compute_deadline);
}

void OptimizerState::copy_half_shards(std::size_t index, Direction direction) {
  auto const& state = states_[index];
  auto const host = host_shards(index);
  HalfValues values(*state.placement.queue, state.placement.space, state.spec.dtype,
                    context_.plan.largest_unit());
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    std::int64_t const numel = state.plan->unit(u).shard_numel;
    if (direction == Direction::to_host)
      values.read(host[position(u)], shard(index, u), numel);
    else
      values.write(shard(index, u), host[position(u)], numel);
  }
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

}  // namespace tessera::zero::detail
