#include "detail/optimizer_state.hpp"

#include <algorithm>

#include "detail/group_runs.hpp"
#include "detail/unit_views.hpp"

namespace tessera::zero::detail {
namespace {

void* offset(void* base, Dtype dtype, std::int64_t elements) {
  return static_cast<std::byte*>(base) + static_cast<std::size_t>(elements) * size_of(dtype);
}

/// Parameters of all units before @p unit.
std::int64_t parameters_before(PartitionPlan const& plan, UnitIndex unit) {
  std::int64_t count = 0;
  for (UnitIndex u = first_unit; u < unit; ++u)
    count += static_cast<std::int64_t>(plan.unit(u).parameters.size());
  return count;
}

/// The plan itself for element-wise states.
std::shared_ptr<PartitionPlan const> plan_of(PartitionPlan const& plan, optim::Extent extent) {
  if (extent == optim::Extent::elementwise) return {std::shared_ptr<PartitionPlan const>(), &plan};
  return std::make_shared<PartitionPlan const>(plan.of_extent(extent));
}

}  // namespace

OptimizerState::OptimizerState(StoreContext const& context, StageRules const& rules,
                               WeightStore& weights, GradientFlow& gradients,
                               optim::Optimizer const& optimizer, PlaceState const& place)
    : context_(context),
      rules_(rules),
      weights_(weights),
      gradients_(gradients),
      optimizer_(optimizer),
      summing_(dynamic_cast<optim::SummingOptimizer const*>(&optimizer)) {
  states_.push_back(make_state({optim::master_weights_name}, memory::Purpose::master_weights,
                               rules.separate_master, place));
  for (auto const& spec : optimizer.spec().states)
    states_.push_back(make_state(spec, memory::Purpose::optimizer_state, true, place));
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    UnitOffset const begin = context_.ownership.begin(u);
    segments_.push_back(segments_of(u, begin, begin + context_.ownership.numel(u)));
  }
  if (summing_) prepare_sums();
}

OptimizerState::State OptimizerState::make_state(optim::StateSpec const& spec,
                                                 memory::Purpose purpose, bool is_allocated,
                                                 PlaceState const& place) const {
  StatePlacement const usual{memory::memory_space_of(context_.compute), &context_.compute};
  State state{spec, plan_of(context_.plan, spec.extent), place ? place(spec) : usual, {}, {}};
  check_placement(state);
  std::int64_t const numel = is_allocated ? ownership(state).state_numel() : 0;
  state.buffer = {spec.name, purpose, static_cast<std::size_t>(numel) * size_of(spec.dtype),
                  state.placement.space};
  return state;
}

void OptimizerState::check_placement(State const& state) const {
  auto const space = memory::memory_space_of(context_.compute);
  auto const& placement = state.placement;
  TESSERA_VALIDATE(state.spec.dtype == Dtype::fp32, InternalError, "state ", state.spec.name,
                   " has dtype ", name_of(state.spec.dtype), "; checkpoints hold fp32 states");
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

Ownership OptimizerState::ownership(State const& state) const {
  return {state.plan.get(), context_.ownership.rank, context_.ownership.replicated};
}

void* OptimizerState::region(std::size_t index, UnitIndex unit) const {
  auto const& state = states_[index];
  if (index == master_weights && !rules_.separate_master) return weights_.region(unit);
  return offset(state.buffer.data(), state.spec.dtype, ownership(state).state_offset(unit));
}

float* OptimizerState::shard(std::size_t index, UnitIndex unit) const {
  return static_cast<float*>(region(index, unit)) + ownership(states_[index]).shard_offset(unit);
}

void OptimizerState::prepare_sums() {
  sums_ = CommBuffer(
      context_.comm, "sums of parameters", memory::Purpose::workspace, Dtype::fp64,
      summing_->sums_per_parameter() * parameters_before(context_.plan, context_.plan.end_unit()));
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    UnitOffset const begin = context_.ownership.begin(u), shard = context_.ownership.shard_begin(u);
    UnitOffset const end = begin + context_.ownership.numel(u),
                     shard_end = shard + context_.plan.unit(u).shard_numel;
    unit_sums_.push_back(
        {segments_of(u, shard, shard_end), sums_of(u, shard, shard_end), sums_of(u, begin, end)});
  }
}

/// In the order of segments_of().
optim::ParameterSums OptimizerState::sums_of(UnitIndex unit, UnitOffset begin,
                                             UnitOffset end) const {
  auto const& parameters = context_.plan.unit(unit).parameters;
  optim::ParameterSums out;
  for (auto const& run : group_runs(context_.plan.unit(unit), begin, end, optimizer_.spec())) {
    auto& of_run = out.of.emplace_back();
    for (auto const& part : run.parameters) {
      UnitOffset const at = run.begin + part.segment_offset;
      auto const slot = std::find_if(parameters.begin(), parameters.end(),
                                     [&](ParameterSlot const& p) { return at < p.end(); });
      std::int64_t const index =
          parameters_before(context_.plan, unit) + (slot - parameters.begin());
      of_run.push_back(static_cast<double*>(sums_.at(summing_->sums_per_parameter() * index)));
    }
  }
  return out;
}

optim::Segments OptimizerState::segments_of(UnitIndex unit, UnitOffset begin,
                                            UnitOffset end) const {
  UnitOffset const region_begin = context_.ownership.begin(unit);
  optim::Segments out{{}, rules_.gradient_dtype, context_.config.dtype};
  for (auto& run : group_runs(context_.plan.unit(unit), begin, end, optimizer_.spec())) {
    std::int64_t const at = run.begin - region_begin;
    optim::Segment s;
    s.master = static_cast<float*>(region(master_weights, unit)) + at;
    for (std::size_t k = master_weights + 1; k < states_.size(); ++k) {
      bool const is_flat = spec(k).extent == optim::Extent::elementwise;
      s.states.push_back(offset(region(k, unit), spec(k).dtype, is_flat ? at : 0));
    }
    s.gradient = offset(gradients_.region(unit), rules_.gradient_dtype, at);
    s.weights_out =
        rules_.separate_master ? offset(weights_.region(unit), context_.config.dtype, at) : nullptr;
    s.numel = run.numel;
    s.group = run.group;
    s.parameters = std::move(run.parameters);
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
  on_update_queue([&](memory::Queue& queue) {
    memory::zero(queue, sums_.at(0), sums_.bytes());
    for (auto const& unit : unit_sums_) summing_->sum(queue, unit.shard, control, unit.of_shard);
    if (!rules_.reduces) return;
    auto const count = static_cast<std::int64_t>(sums_.bytes() / sizeof(double));
    auto const complete =
        context_.comm.all_reduce(sums_.view(0, count), comm::ReduceOp::sum, queue.record());
    complete.order_before(queue);
    if (memory::memory_space_of(queue) == memory::MemorySpace::host) context_.comm.wait(complete);
  });
}

void OptimizerState::update(UnitIndex unit, optim::StepControl const& control) const {
  auto const index = position(unit);
  on_update_queue([&](memory::Queue& queue) {
    if (summing_)
      summing_->update_with(queue, segments_[index], control, unit_sums_[index].of_region);
    else
      optimizer_.update(queue, segments_[index], control);
  });
}

void OptimizerState::round_weights(UnitIndex unit) const {
  if (!rules_.separate_master) return;
  std::int64_t const n = context_.plan.unit(unit).shard_numel;
  void* const weights =
      offset(weights_.region(unit), context_.config.dtype, context_.ownership.shard_offset(unit));
  kernels::cast(context_.compute, {weights, context_.config.dtype, {n}},
                memory::TensorView{shard(master_weights, unit), Dtype::fp32, {n}});
}

bool OptimizerState::has_host_copies() const {
  return std::any_of(states_.begin(), states_.end(), [](State const& state) {
    return state.placement.space == memory::MemorySpace::device;
  });
}

std::vector<float*> OptimizerState::host_shards(std::size_t index) {
  auto& state = states_[index];
  bool const is_copy = state.placement.space == memory::MemorySpace::device;
  if (is_copy && state.host_copy.bytes() == 0)
    state.host_copy = {"host copy of a state", memory::Purpose::data,
                       static_cast<std::size_t>(state.plan->partition_numel()) * sizeof(float),
                       memory::MemorySpace::host};
  std::vector<float*> out;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
    out.push_back(is_copy ? static_cast<float*>(state.host_copy.data()) +
                                state.plan->unit(u).partition_offset.value()
                          : shard(index, u));
  return out;
}

void OptimizerState::copy_shards(std::size_t index, Direction direction) {
  auto& state = states_[index];
  if (state.placement.space != memory::MemorySpace::device) return;
  auto const host = host_shards(index);
  auto& queue = *state.placement.queue;
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

void OptimizerState::replicate(What what) const {
  if (!rules_.reduces || !context_.ownership.replicated) return;
  auto const after = context_.compute.record();
  comm::Pending last;
  std::size_t const count = what == What::master_weights ? master_weights + 1 : states_.size();
  for (std::size_t k = 0; k < count; ++k) {
    auto const& state = states_[k];
    if (state.buffer.bytes() == 0) continue;
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
      auto const& layout = state.plan->unit(u);
      memory::TensorView const all(region(k, u), state.spec.dtype, {layout.padded_numel});
      for (auto const& blocks :
           cut_blocks(layout, context_.plan.ranks(), context_.config.allgather_bucket_size))
        last = context_.comm.all_gather(all, blocks, after);
    }
  }
  context_.comm.wait(last);
}

std::size_t OptimizerState::state_bytes() const {
  std::size_t sum = 0;
  for (auto const& state : states_) sum += state.buffer.bytes();
  return sum - master_bytes();
}

}  // namespace tessera::zero::detail
