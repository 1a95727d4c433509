#pragma once
/// The memory that the model states need by the formula of the ZeRO paper.

#include "layout/stage_rules.hpp"

namespace tessera::zero::detail {

/// Bytes per rank:  P (w / n_w + g / n_g + (m + s) / n_o), where P is the number of parameters, w
/// and g are the bytes of a weight and of a gradient, m those of a separate master weight (4 with
/// 16-bit weights, else 0), s the sum of bytes over the optimizer's states, and n_x is the number
/// of ranks where the stage shards x, else 1. States that are not element-wise add their own number
/// of values on every rank; a quantized state has the bytes of quantized_bytes(). Rajbhandari et
/// al., "ZeRO", SC'20, section 3.1 and 5: with AdamW (s = 8) and 16-bit weights and gradients the
/// stages 0 to 3 need 16 P, 4 P + 12 P/N, 2 P + 14 P/N and 16 P/N bytes. F @p frozen parameters add
/// F w / n_w.
std::size_t formula_bytes(EngineConfig const& config, StageRules const& rules,
                          PartitionPlan const& plan, PartitionPlan const& frozen);

/// The part of these bytes that are weights, all of them in inference.
std::size_t weight_formula_bytes(EngineConfig const& config, StageRules const& rules,
                                 PartitionPlan const& plan, PartitionPlan const& frozen);

}  // namespace tessera::zero::detail
