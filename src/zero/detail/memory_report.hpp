#pragma once
#include "detail/stage_rules.hpp"

namespace tessera::zero::detail {

/// Bytes of the model states that one rank needs:  P (w_s/n_w + g/n_g + (master + 8)/n_o), where
/// w_s, g are the bytes of a weight and of a kept gradient, master is 4 beside 16-bit weights and 0
/// when the weights are fp32 (they are the master), 8 the two moments, and n_x is the number of
/// ranks where the stage shards x, else 1. With 16-bit weights and gradients: 16 P, 4 P + 12 P/N,
/// 2 P + 14 P/N, 16 P/N.  Rajbhandari et al., "ZeRO", SC'20, section 3.1 and 5.
std::size_t formula_bytes(EngineConfig const& config, StageRules const& rules,
                          PartitionPlan const& plan);

}  // namespace tessera::zero::detail
