#pragma once
/// Token and position embeddings.

#include "tessera/kernels/elementwise.hpp"

namespace tessera::kernels {

/// out[b, t, :] = dropout(wte[tokens[b, t], :] + wpe[t, :]).  wpe may be empty (no learned
/// positions). Shapes   out [B, T, C] T;  tokens [B, T] int32;  wte [V, C] T;  wpe [>=T, C] T
void embedding(Queue& q, TensorView out, ConstTensorView tokens, ConstTensorView wte,
               ConstTensorView wpe, Dropout const& drop);

/// What a device's backward pass needs besides: the positions grouped by token, and room for the
/// parts of tokens that occur often.
struct TokenGroups {
  ConstTensorView order;  ///< [B * T] int32, of order_by_token()
  TensorView parts;  ///< at least embedding_backward_parts(q, B * T, C) fp32 elements; overwritten
};

/// dwte[tokens[b,t]] += dout[b,t] (rows of absent tokens are zeroed first unless accumulate),
/// dwpe[t] (+)= sum over b of dout[b,t]. dout is first multiplied by the dropout mask.
/// Deterministic: each output row is summed by one worker, on the host in position order; on a
/// device (which needs @p groups) a token's positions are summed by slices of 32 of the order, then
/// the slices. Three launches there, each reading its input once: 2 x 2 R C bytes of 16-bit
/// elements for R = B * T, and at most 8 C bytes a slice written and read again.
void embedding_backward(Queue& q, TensorView dwte, TensorView dwpe, bool accumulate_wte,
                        bool accumulate_wpe, ConstTensorView dout, ConstTensorView tokens,
                        Dropout const& drop, TokenGroups const& groups = {});
/// 0 on the host.
std::int64_t embedding_backward_parts(Queue const& q, std::int64_t positions, std::int64_t columns);

/// order <- 0 .. positions - 1 by token, those of a token ascending. On the caller's thread and in
/// host memory, time linear in the positions: the tokens of a micro-batch are there before they go
/// to the device.
void order_by_token(std::int32_t* order, std::int32_t const* tokens, std::int64_t positions);

}  // namespace tessera::kernels
