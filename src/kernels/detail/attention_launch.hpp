#pragma once
/// Attention on a CUDA stream; arguments as in the public header. On other queues it runs too,
/// slower than the host's own tiles.

#include "tessera/kernels/attention.hpp"

namespace tessera::kernels::detail {

void attention_on_device(Queue& q, Dtype dtype, AttentionShape const& shape, TensorView out,
                         TensorView lse, AttentionInput query, AttentionInput key,
                         AttentionInput value, Dropout const& drop);

struct AttentionGradients {
  AttentionOutput query, key, value;
};
struct AttentionSaved {
  ConstTensorView dout, out, lse;
};
/// @p delta [B, heads, T] fp32, overwritten.
void attention_backward_on_device(Queue& q, Dtype dtype, AttentionShape const& shape,
                                  AttentionGradients const& gradients, AttentionSaved const& saved,
                                  AttentionInput query, AttentionInput key, AttentionInput value,
                                  Dropout const& drop, float* delta);

}  // namespace tessera::kernels::detail
