#pragma once
/// Token and position embeddings.

#include "tessera/kernels/elementwise.hpp"

namespace tessera::kernels {

/// out[b, t, :] = dropout(wte[tokens[b, t], :] + wpe[t, :]).  wpe may be empty (no learned positions).
/// Shapes   out [B, T, C] T;  tokens [B, T] int32;  wte [V, C] T;  wpe [>=T, C] T
void embedding(Queue& q, TensorView out, ConstTensorView tokens, ConstTensorView wte, ConstTensorView wpe, Dropout const& drop);

/// dwte[tokens[b,t]] += dout[b,t] (rows of absent tokens are zeroed first unless accumulate), dwpe[t] (+)= sum over b of dout[b,t].
/// dout is first multiplied by the dropout mask. Deterministic: each output row is summed in position order by one worker.
void embedding_backward(Queue& q, TensorView dwte, TensorView dwpe, bool accumulate_wte, bool accumulate_wpe, ConstTensorView dout,
                        ConstTensorView tokens, Dropout const& drop);

}  // namespace tessera::kernels
