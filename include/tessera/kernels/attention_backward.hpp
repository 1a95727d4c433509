#pragma once
/// Gradients of causal multi-head attention.
/// Dao et al., "FlashAttention", NeurIPS 2022, algorithm 4.

#include "tessera/kernels/attention.hpp"

namespace tessera::kernels {

/// dquery, dkey, dvalue overwritten. @p workspace: attention_backward_workspace() fp32 elements.
void attention_backward(Queue& q, Dtype dtype, AttentionShape const& shape, AttentionOutput dquery,
                        AttentionOutput dkey, AttentionOutput dvalue, ConstTensorView dout,
                        ConstTensorView out, ConstTensorView lse, AttentionInput query,
                        AttentionInput key, AttentionInput value, Dropout const& drop,
                        TensorView workspace);
/// fp32 elements of the workspace: on a device one per row of a head, on the host complete rows.
std::int64_t attention_backward_workspace(Queue const& q, AttentionShape const& shape);

}  // namespace tessera::kernels
