#pragma once
/// The host's attention of bf16 operands whose products are formed by AMX. Scores, softmax and sums
/// are fp32; probabilities and dS are rounded to bf16 before they are multiplied, as in PyTorch's
/// flash attention and in cuDNN.

#include "attention/attention_operands.hpp"
#include "attention/attention_sums.hpp"
#include "launch/amx.hpp"

namespace tessera::kernels::detail {

inline constexpr char const* amx_route = "tiles on the host, bf16 by AMX";

/// The tasks of kernels::attention(). @pre has_amx_bf16()
void attention_by_amx(memory::Queue& q, AttentionRows<bfloat16> const& in,
                      HeadRows<bfloat16> const& out, float* lse);

/// The tasks of kernels::attention_backward() but for the sums of shared heads. @pre has_amx_bf16()
void attention_backward_by_amx(memory::Queue& q, AttentionRowsBackward<bfloat16> const& from,
                               AttentionGradientRows<bfloat16> const& to, float* workspace);

}  // namespace tessera::kernels::detail
