#pragma once
/// Softmax cross-entropy on a chunk of logits.

#include "tessera/kernels/elementwise.hpp"

namespace tessera::kernels {

/// losses[r] = logsumexp(logits[r, :]) - logits[r, targets[r]];  0 where targets[r] < 0 (ignored,
/// like torch's -100) dlogits[r, v] = gradient_scale * (softmax(logits[r])[v] - [v == targets[r]]);
/// 0 for ignored rows. Skipped when empty. Shapes   logits [R, V] fp32 or T;  targets [R] int32;
/// losses [R] fp32;  dlogits [R, V] T, may alias logits when the dtypes agree
/// @p vocabulary: the columns that count, when both have longer rows (for 16-byte accesses of a
/// device, a multiple of 8); 0: all. What dlogits holds beyond them is undefined. Traffic 4 B read
/// and 2 or 4 B written per logit; a device reads a row again for the gradient, from its
/// second-level cache.
void cross_entropy(Queue& q, TensorView losses, TensorView dlogits, ConstTensorView logits,
                   ConstTensorView targets, float gradient_scale, std::int64_t vocabulary = 0);

}  // namespace tessera::kernels
