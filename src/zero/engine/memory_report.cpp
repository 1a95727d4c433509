#include "engine/memory_report.hpp"

#include <cmath>

#include "gradients/micro_step_sums.hpp"
#include "optimizer/quantized_state.hpp"
#include "weights/frozen_weights.hpp"

namespace tessera::zero::detail {
namespace {

double bytes(Dtype dtype) { return static_cast<double>(size_of(dtype)); }

/// Returns the bytes of a state per rank, where @p ranks share the element-wise states. The other
/// states are on every rank.
double state_bytes(optim::StateSpec const& state, PartitionPlan const& plan, double ranks) {
  if (state.encoding != optim::Encoding::values) {
    double all = 0.0;
    for (auto const& unit : plan.units()) all += static_cast<double>(quantized_bytes(unit));
    return all / ranks;
  }
  if (state.extent == optim::Extent::elementwise)
    return bytes(state.dtype) * static_cast<double>(plan.parameter_count()) / ranks;
  double const all =
      bytes(state.dtype) * static_cast<double>(plan.of_extent(state.extent).parameter_count());
  return optim::is_spread(state.extent) ? all / ranks : all;
}

/// Weights of the first units, which a drive does not hold.
double kept_weight_bytes(EngineConfig const& config, PartitionPlan const& plan) {
  std::int64_t const memory_numel = settings<ShardedWeights>(config).weight_swap->memory_numel;
  std::int64_t kept = 0;
  for (auto const& unit : plan.units())
    if (kept + unit.shard_numel <= memory_numel) kept += unit.shard_numel;
  return static_cast<double>(kept) * bytes(config.dtype);
}

double weights_of_formula(EngineConfig const& config, StageRules const& rules,
                          PartitionPlan const& plan, PartitionPlan const& frozen) {
  auto const& sharded = settings<ShardedWeights>(config);
  double const all =
      static_cast<double>(plan.parameter_count() + frozen.parameter_count()) * bytes(config.dtype);
  double weights = all / (rules.shards_weights ? plan.ranks() : 1.0);
  if (sharded.weight_swap)
    weights = kept_weight_bytes(with_share_of_limits(config, plan, frozen), plan) +
              kept_weight_bytes(with_share_of_limits(config, frozen, plan), frozen);
  if (sharded.secondary_group_size > 1 && plan.ranks() > 1)
    weights += all / sharded.secondary_group_size;
  return weights;
}

}  // namespace

std::size_t weight_formula_bytes(EngineConfig const& config, StageRules const& rules,
                                 PartitionPlan const& plan, PartitionPlan const& frozen) {
  return static_cast<std::size_t>(std::llround(weights_of_formula(config, rules, plan, frozen)));
}

std::size_t formula_bytes(EngineConfig const& config, StageRules const& rules,
                          PartitionPlan const& plan, PartitionPlan const& frozen) {
  double const n = plan.ranks();
  auto const parameters = static_cast<double>(plan.parameter_count());
  double const gradients = MicroStepSums::copies_of(config) * parameters *
                           bytes(rules.gradient_dtype) / (rules.shards_gradients ? n : 1.0);
  double const sharing = rules.shards_optimizer ? n : 1.0;
  bool const swaps = settings<ShardedStates>(config).optimizer_swap.has_value();
  double optimizer =
      rules.separate_master && !swaps ? parameters * bytes(rules.master_dtype) / sharing : 0.0;
  for (auto const& state : config.optimizer.states)
    if (!swaps || state.extent != optim::Extent::elementwise ||
        state.encoding != optim::Encoding::values)
      optimizer += state_bytes(state, plan, state.copies == optim::Copies::sharded ? n : sharing);
  return static_cast<std::size_t>(
      std::llround(weights_of_formula(config, rules, plan, frozen) + gradients + optimizer));
}

}  // namespace tessera::zero::detail
