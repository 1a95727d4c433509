#pragma once
/// The gradients of attention_amx.hpp.

#include "attention/attention_sums.hpp"
#include "launch/amx.hpp"

namespace tessera::kernels::detail {

/// The tasks of kernels::attention_backward() but for the sums of shared heads. @pre has_amx_bf16()
void attention_backward_by_amx(memory::Queue& q, AttentionRowsBackward<bfloat16> const& from,
                               AttentionGradientRows<bfloat16> const& to, float* workspace);

}  // namespace tessera::kernels::detail
