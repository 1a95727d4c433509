#include "detail/optimizer_state.hpp"

#include <cmath>

#include "detail/unit_views.hpp"

namespace tessera::zero::detail {
namespace {

memory::Buffer state_buffer(std::string name, memory::Purpose purpose, std::int64_t numel,
                            memory::MemorySpace space) {
  return {std::move(name), purpose, static_cast<std::size_t>(numel) * sizeof(float), space};
}

void* offset(void* base, Dtype dtype, std::int64_t elements) {
  return static_cast<std::byte*>(base) + static_cast<std::size_t>(elements) * size_of(dtype);
}

}  // namespace

OptimizerState::OptimizerState(StoreContext const& context, StageRules const& rules,
                               WeightStore& weights, GradientFlow& gradients)
    : context_(context),
      rules_(rules),
      weights_(weights),
      gradients_(gradients),
      space_(memory::memory_space_of(context.compute)),
      master_(state_buffer("master weights", memory::Purpose::master_weights,
                           rules.separate_master ? context.ownership.state_numel() : 0, space_)),
      exp_avg_(state_buffer("exp_avg", memory::Purpose::optimizer_state,
                            context.ownership.state_numel(), space_)),
      exp_avg_sq_(state_buffer("exp_avg_sq", memory::Purpose::optimizer_state,
                               context.ownership.state_numel(), space_)) {
  for (int u = 0; u < static_cast<int>(context.plan.units().size()); ++u)
    segments_.push_back(segments_of(u));
}

float* OptimizerState::master(int unit) const {
  return rules_.separate_master ? at(master_, unit) : static_cast<float*>(weights_.region(unit));
}

std::vector<kernels::AdamWSegment> OptimizerState::segments_of(int unit) const {
  std::int64_t const begin = context_.ownership.begin(unit),
                     end = begin + context_.ownership.numel(unit);
  std::vector<kernels::AdamWSegment> out;
  for (auto const& run : decay_runs(context_.plan.unit(unit), begin, end)) {
    std::int64_t const o = run.begin - begin;
    kernels::AdamWSegment s;
    s.master = master(unit) + o;
    s.exp_avg = at(exp_avg_, unit) + o;
    s.exp_avg_sq = at(exp_avg_sq_, unit) + o;
    s.gradient = offset(gradients_.region(unit), rules_.gradient_dtype, o);
    s.weights_out =
        rules_.separate_master ? offset(weights_.region(unit), context_.config.dtype, o) : nullptr;
    s.numel = run.numel;
    bool const decays = run.decays || !context_.config.decay_groups;
    s.weight_decay = decays ? context_.config.weight_decay : 0.0;
    out.push_back(s);
  }
  return out;
}

std::vector<kernels::GradientRun> OptimizerState::gradient_shards() const {
  std::vector<kernels::GradientRun> runs;
  for (int u = 0; u < static_cast<int>(context_.plan.units().size()); ++u)
    runs.push_back(
        {offset(gradients_.region(u), rules_.gradient_dtype, context_.ownership.shard_offset(u)),
         context_.plan.unit(u).shard_numel});
  return runs;
}

void OptimizerState::update(int unit, std::int64_t t, double learning_rate,
                            kernels::StepControl const* control) const {
  auto const& c = context_.config;
  kernels::AdamWStep step;
  step.segments = segments_[static_cast<std::size_t>(unit)];
  for (auto& s : step.segments) s.learning_rate = learning_rate;
  step.gradient_dtype = rules_.gradient_dtype;
  step.weights_dtype = c.dtype;
  step.beta1 = c.beta1;
  step.beta2 = c.beta2;
  step.epsilon = c.epsilon;
  if (c.bias_correction) {
    step.bias_correction1 = 1.0 - std::pow(c.beta1, static_cast<double>(t));
    step.bias_correction2 = 1.0 - std::pow(c.beta2, static_cast<double>(t));
  }
  step.adam_l2 = c.adam_l2;
  step.control = control;
  if (!step.segments.empty()) kernels::adamw(context_.compute, step);
}

void OptimizerState::round_weights(int unit) const {
  if (!rules_.separate_master) return;
  std::int64_t const n = context_.plan.unit(unit).shard_numel;
  void* const weights =
      offset(weights_.region(unit), context_.config.dtype, context_.ownership.shard_offset(unit));
  kernels::cast(context_.compute, {weights, context_.config.dtype, {n}},
                memory::TensorView{master_shard(unit), Dtype::fp32, {n}});
}

float* OptimizerState::shard(Part part, int unit) const {
  switch (part) {
    case Part::master:
      return master_shard(unit);
    case Part::exp_avg:
      return exp_avg_shard(unit);
    case Part::exp_avg_sq:
      return exp_avg_sq_shard(unit);
  }
  return nullptr;
}

std::vector<float*> OptimizerState::host_shards(Part part) {
  auto& mirror = mirrors_[static_cast<std::size_t>(part)];
  bool const mirrored = space_ == memory::MemorySpace::device;
  if (mirrored && mirror.bytes() == 0)
    mirror = state_buffer("host copy of a shard", memory::Purpose::data,
                          context_.plan.partition_numel(), memory::MemorySpace::host);
  std::vector<float*> out;
  for (int u = 0; u < static_cast<int>(context_.plan.units().size()); ++u)
    out.push_back(mirrored
                      ? static_cast<float*>(mirror.data()) + context_.plan.unit(u).partition_offset
                      : shard(part, u));
  return out;
}

void OptimizerState::copy_shards(Part part, Direction direction) {
  if (space_ != memory::MemorySpace::device) return;
  auto const host = host_shards(part);
  for (std::size_t u = 0; u < host.size(); ++u) {
    auto const bytes =
        static_cast<std::size_t>(context_.plan.units()[u].shard_numel) * sizeof(float);
    float* const device = shard(part, static_cast<int>(u));
    if (direction == Direction::to_host)
      memory::copy(context_.compute, host[u], device, bytes);
    else
      memory::copy(context_.compute, device, host[u], bytes);
  }
  context_.compute.record().wait("copies of the optimizer state", compute_deadline);
}

void OptimizerState::replicate(What what) const {
  if (!rules_.reduces || !context_.ownership.replicated) return;
  auto const after = context_.compute.record();
  comm::Pending last;
  auto const gather = [&](memory::Buffer const& state) {
    for (int u = 0; u < static_cast<int>(context_.plan.units().size()); ++u) {
      auto const& layout = context_.plan.unit(u);
      memory::TensorView const whole(at(state, u), Dtype::fp32, {layout.padded_numel});
      for (auto const& blocks :
           cut_blocks(layout, context_.plan.ranks(), context_.config.allgather_bucket_size))
        last = context_.comm.all_gather(whole, blocks, after);
    }
  };
  if (rules_.separate_master) gather(master_);
  if (what == What::masters_and_moments) {
    gather(exp_avg_);
    gather(exp_avg_sq_);
  }
  context_.comm.wait(last);
}

}  // namespace tessera::zero::detail
