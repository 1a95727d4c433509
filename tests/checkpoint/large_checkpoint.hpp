#pragma once
/// A checkpoint that is larger than the memory a test may use.

#include "fixture.hpp"

namespace tessera::test {

/// A checkpoint that is made without holding it.
inline fs::path save_large(fs::path const& checkpoints, int ranks,
                           std::vector<memory::UnitSpec> const& units) {
  zero::PartitionPlan const plan(units, ranks);
  checkpoint::StreamedStates states{{"fp32", "exp_avg", "exp_avg_sq"}, {}};
  states.read = [](std::string const& state, zero::ShardExtent const& extent, std::int64_t first,
                   std::int64_t numel, float* out) {
    for (std::int64_t i = 0; i < numel; ++i)
      out[i] = static_cast<float>((extent.parameter_offset.value() + first + i) % 9973) +
               static_cast<float>(state.size());
  };
  return checkpoint::save_all(request_for(checkpoints, 1, plan, units), states).directory;
}

}  // namespace tessera::test
