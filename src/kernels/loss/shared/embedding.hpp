#pragma once
/// Token and position embeddings.

#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

/// Learned positions.
struct PositionTable {
  ConstTensorView wpe{};  ///< [P, C] T; empty: no learned positions
  ConstTensorView ids{};  ///< [B, T] int32, rows of wpe; empty: t, where P >= T
};

/// out[b, t, :] = dropout(wte[tokens[b, t], :] + wpe[ids[b, t], :]).
/// Shapes   out [B, T, C] T, overwritten;  tokens [B, T] int32;  wte [V, C] T.
/// 2 or 4 bytes read (without and with wpe) and 2 written per 16-bit element.
void embedding(Queue& q, TensorView out, ConstTensorView tokens, ConstTensorView wte,
               PositionTable const& positions, Dropout const& drop);

/// Additional operands of a device's backward pass: the positions grouped by token, and memory for
/// partial sums of frequent tokens.
struct TokenGroups {
  ConstTensorView order;  ///< [B * T] int32, of order_by_token()
  TensorView parts;  ///< at least embedding_backward_parts(q, B * T, C) fp32 elements; overwritten
};
struct EmbeddingGradients {
  GradientTarget dwte;  ///< [V, C] fp32 or T; overwrite zeroes the rows of absent tokens
  GradientTarget dwpe;  ///< [>=T, C], dwte's dtype; an empty view: no learned positions
};
struct EmbeddingBackwardInput {
  ConstTensorView dout;    ///< [B, T, C] T
  ConstTensorView tokens;  ///< [B, T] int32
  TokenGroups groups{};    ///< needed on a device
};

/// dwte[tokens[b,t]] (+)= dout[b,t] * mask,  dwpe[t] (+)= sum over b of dout[b,t] * mask, where
/// mask is the dropout of the forward pass. Outputs must not alias dout. Deterministic: one worker
/// sums an output row, on the host in position order. A device sums a token's positions in slices
/// of 32 of the order, then the slices: three launches, each of which reads its input once, 2 x 2 R
/// C bytes of 16-bit elements for R = B * T, and at most 8 C bytes per slice written and read.
void embedding_backward(Queue& q, Dropout const& drop, EmbeddingGradients const& to,
                        EmbeddingBackwardInput const& from);
/// 0 on the host.
std::int64_t embedding_backward_parts(Queue const& q, std::int64_t positions, std::int64_t columns);

/// order [positions] = 0 .. positions - 1 sorted by token, positions of one token ascending (a
/// stable radix sort, linear time). Runs on the calling thread in host memory, before a
/// micro-batch's tokens are copied to the device.
void order_by_token(std::int32_t* order, std::int32_t const* tokens, std::int64_t positions);

}  // namespace tessera::kernels
