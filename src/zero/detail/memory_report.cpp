#include "detail/memory_report.hpp"

#include <cmath>

namespace tessera::zero::detail {

std::size_t formula_bytes(EngineConfig const& config, StageRules const& rules,
                          PartitionPlan const& plan) {
  double const n = plan.ranks();
  double const weights =
      static_cast<double>(size_of(config.dtype)) / (rules.shards_weights ? n : 1.0);
  double const gradients =
      static_cast<double>(size_of(rules.gradient_dtype)) / (rules.shards_gradients ? n : 1.0);
  double const optimizer =
      (rules.separate_master ? 12.0 : 8.0) / (rules.shards_optimizer ? n : 1.0);
  return static_cast<std::size_t>(std::llround(static_cast<double>(plan.parameter_count()) *
                                               (weights + gradients + optimizer)));
}

}  // namespace tessera::zero::detail
