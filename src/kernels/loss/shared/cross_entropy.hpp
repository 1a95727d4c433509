#pragma once
/// Softmax cross-entropy on a chunk of logits.

#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

struct CrossEntropyOptions {
  float gradient_scale = 1.0f;
  /// Columns that are part of the vocabulary, when the rows of logits and dlogits are longer
  /// (16-byte accesses of a device need a multiple of 8); 0: all. dlogits beyond them is undefined.
  std::int64_t vocabulary = 0;
  /// The logits x become soft_cap * tanh(x / soft_cap) first, as in Gemma2; 0: off.
  float soft_cap = 0.0f;
  /// Share of the target that is spread over the vocabulary, e below, as the LabelSmoother of
  /// transformers does; 0: off. Szegedy et al., CVPR 2016, section 7.
  float label_smoothing = 0.0f;
  /// Multiplies losses[r] and the row's gradient by the probability of the target, through which no
  /// gradient flows: Dynamic Fine-Tuning, arXiv 2508.05629.
  bool dynamic = false;
};

/// losses[r] = logsumexp(logits[r, :]) - (1 - e) logits[r, targets[r]] - e mean(logits[r, :]);  0
/// where targets[r] < 0 (ignored, like torch's -100).
/// dlogits[r, v] = gradient_scale * (softmax(logits[r])[v] - (1 - e) [v == targets[r]] - e / V);  0
/// for ignored rows. Shapes   losses [R] fp32;  dlogits [R, V] T, or empty: no gradient;  logits
/// [R, V] fp32 or T; targets [R] int32. All outputs are overwritten; dlogits may alias logits when
/// the dtypes agree. Deterministic. 4 bytes read and 2 or 4 written per logit; a device reads a row
/// a second time for the gradient, from its L2 cache. Online softmax: Milakov & Gimelshein, arXiv
/// 1805.02867, algorithm 3.
void cross_entropy(Queue& q, CrossEntropyOptions const& options, TensorView losses,
                   TensorView dlogits, ConstTensorView logits, ConstTensorView targets);

/// entropy[r] = -sum p log p over the first `vocabulary` columns, p = softmax(logits[r]) after the
/// soft cap; means[r] = their mean logit; both 0 where targets[r] < 0. Shapes   entropy [R] and
/// means [R] fp32, overwritten;  logits [R, at least vocabulary] fp32, fp16 or bf16;  targets [R]
/// int32. Deterministic. Reads each logit twice.
void token_entropy(Queue& q, CrossEntropyOptions const& options, TensorView entropy,
                   TensorView means, ConstTensorView logits, ConstTensorView targets);

}  // namespace tessera::kernels
