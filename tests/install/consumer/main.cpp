#include <cstdio>
#include <tessera/config/arguments_table.hpp>
#include <tessera/core/error.hpp>
#include <tessera/zero/partition_plan.hpp>

int main() {
  tessera::memory::UnitSpec unit{"unit", {{"weight", {10, 100}, {}, true, {}}}};
  tessera::zero::PartitionPlan const plan({unit}, 3);
  std::printf("%lld parameters over %d ranks: %lld elements a rank\n",
              static_cast<long long>(plan.parameter_count()), plan.ranks(),
              static_cast<long long>(plan.partition_numel()));
  return tessera::config::argument_table().options().empty() ? 1 : 0;
}
