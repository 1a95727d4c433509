#include "detail/memory_report.hpp"

#include <cmath>

namespace tessera::zero::detail {
namespace {

double bytes(Dtype dtype) { return static_cast<double>(size_of(dtype)); }

/// Of all ranks together.
double state_bytes(optim::StateSpec const& state, PartitionPlan const& plan) {
  bool const is_flat = state.extent == optim::Extent::elementwise;
  auto const values =
      is_flat ? plan.parameter_count() : plan.of_extent(state.extent).parameter_count();
  return bytes(state.dtype) * static_cast<double>(values);
}

}  // namespace

std::size_t formula_bytes(EngineConfig const& config, StageRules const& rules,
                          PartitionPlan const& plan) {
  double const n = plan.ranks();
  auto const parameters = static_cast<double>(plan.parameter_count());
  double const weights = parameters * bytes(config.dtype) / (rules.shards_weights ? n : 1.0);
  double const gradients =
      parameters * bytes(rules.gradient_dtype) / (rules.shards_gradients ? n : 1.0);
  double optimizer = rules.separate_master ? parameters * bytes(Dtype::fp32) : 0.0;
  for (auto const& state : config.optimizer.states) optimizer += state_bytes(state, plan);
  return static_cast<std::size_t>(
      std::llround(weights + gradients + optimizer / (rules.shards_optimizer ? n : 1.0)));
}

}  // namespace tessera::zero::detail
