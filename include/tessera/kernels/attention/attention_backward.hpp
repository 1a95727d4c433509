#pragma once
/// Gradients of causal multi-head attention.  Dao et al., "FlashAttention", NeurIPS 2022,
/// algorithm 4; "FlashAttention-2", arXiv 2307.08691, section 3.1.

#include "tessera/kernels/attention/attention.hpp"

namespace tessera::kernels {

struct AttentionGradients {
  HeadsView query, key, value;  ///< overwritten; must not alias any input
};
/// Of the forward pass, and the gradient of its output.
struct AttentionSaved {
  ConstTensorView dout;  ///< [B, T, heads * head_dim] T
  ConstTensorView out;   ///< [B, T, heads * head_dim] T
  ConstTensorView lse;   ///< [B, heads, T] fp32
};

/// With P = softmax(scale q.k), f the dropout factors and delta_t = dout_t . out_t:
///   dv_s = sum_t (P f)[t,s] dout_t;  dP = dout v;  dS = P (dP f - delta);
///   dq_t = scale sum_s dS[t,s] k_s;  dk_s = scale sum_t dS[t,s] q_t
/// P is recomputed from lse, tile by tile. Deterministic; no atomics.
/// @p workspace: at least attention_backward_workspace() fp32 elements; overwritten.
void attention_backward(Queue& q, AttentionConfig const& config, AttentionGradients const& to,
                        AttentionInput const& from, AttentionSaved const& saved,
                        TensorView workspace);
/// On a device one element per row of a head (delta); on the host complete fp32 rows as well.
std::int64_t attention_backward_workspace(Queue const& q, AttentionShape const& shape);

}  // namespace tessera::kernels
