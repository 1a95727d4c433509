#pragma once
/// Whether the most likely token is the right one.

#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

/// hits[r] = 1 where logits[r, targets[r]] is the largest of the first @p vocabulary logits of the
/// row, and the first of equals, as torch.argmax on the CPU; else 0, also where targets[r] < 0.
/// Shapes   hits [R] fp32, overwritten;  logits [R, at least vocabulary] fp32, fp16 or bf16;
/// targets [R] int32. Deterministic. 2 or 4 bytes read per logit.
void top1_hits(Queue& q, TensorView hits, ConstTensorView logits, ConstTensorView targets,
               std::int64_t vocabulary);

}  // namespace tessera::kernels
