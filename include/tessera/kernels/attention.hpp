#pragma once
/// Causal multi-head attention without a T x T buffer: tiles with an online softmax.
/// Dao et al., "FlashAttention", NeurIPS 2022, algorithms 1 and 4; Milakov & Gimelshein, arXiv
/// 1805.02867.

#include "tessera/kernels/elementwise.hpp"

namespace tessera::kernels {

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  int heads = 0;
  int kv_heads = 0;  ///< = heads, or fewer for grouped / multi-query attention
  int head_dim = 0;
  float scale = 1.0f;  ///< of q.k, 1/sqrt(head_dim) for GPT-2
};

/// Rows of q, k, v: q of (b, t, h) starts at base + ((b * T + t) * row_stride + h * head_dim); the
/// fused projection [B, T, 3C] of GPT-2 is three such views with row_stride 3C.
struct AttentionInput {
  void const* base = nullptr;
  std::int64_t row_stride = 0;
};
struct AttentionOutput {
  void* base = nullptr;
  std::int64_t row_stride = 0;
};

/// out[b,t,h,:] = sum_s P[t,s] v[s],  P = dropout(softmax_s<=t(scale q.k));  lse[b,h,t] = log sum_s
/// exp(scale q.k)  fp32 Shapes   out [B, T, heads*head_dim] dtype;  lse [B, heads, T] fp32 The
/// dropout element of (b, h, t, s) is first_element + ((b * heads + h) * T + t) * T + s.
void attention(Queue& q, Dtype dtype, AttentionShape const& shape, TensorView out, TensorView lse,
               AttentionInput query, AttentionInput key, AttentionInput value, Dropout const& drop);

}  // namespace tessera::kernels
