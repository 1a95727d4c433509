#pragma once
/// The fused AdamW update of a rank's partition.

#include <vector>

#include "tessera/kernels/step_decision.hpp"

namespace tessera::kernels {

/// A run of the partition with one set of coefficients.
struct AdamWSegment {
  float* master = nullptr;      ///< fp32 weights, updated
  float* exp_avg = nullptr;     ///< first moment, updated
  float* exp_avg_sq = nullptr;  ///< second moment, updated
  void const* gradient = nullptr;
  void* weights_out = nullptr;  ///< 16-bit weights written from the updated master; null when the
                                ///< master is the weight
  std::int64_t numel = 0;
  double learning_rate = 0.0;
  double weight_decay = 0.0;
};

/// One step for all segments:  g = gradient * gradient_factor (unscale and clip in one), then
///   m <- beta1 m + (1-beta1) g;  v <- beta2 v + (1-beta2) g^2
///   decoupled: p <- p - lr * weight_decay * p, then p <- p - lr * (m / (1-beta1^t)) / (sqrt(v /
///   (1-beta2^t)) + epsilon) (adam_l2: g += weight_decay * p first, no decoupled decay;
///   bias_correction false: the divisors are 1)
/// in the order of operations of torch.optim.AdamW, in fp32; coefficients such as 1 - beta1 are
/// computed in double and rounded once. An element's result depends on its own values only, not on
/// where it lies in a segment. The step may be dropped after the call. Source  Loshchilov & Hutter,
/// "Decoupled Weight Decay Regularization", ICLR 2019, Alg. 2.  Traffic 16 B read + 12 B written
/// (+2).
struct AdamWStep {
  std::vector<AdamWSegment> segments;
  Dtype gradient_dtype = Dtype::fp32;
  Dtype weights_dtype = Dtype::fp32;  ///< of weights_out
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double bias_correction1 = 1.0,
         bias_correction2 = 1.0;  ///< 1 - beta^t, computed in double by the caller
  bool adam_l2 = false;
  double gradient_factor = 1.0;
  /// In memory of the queue's space (memory::memory_space_of), read when the kernels run and then
  /// used instead of gradient_factor, with the same bits; it stays there until they have run.
  GradientControl const* control = nullptr;
};
void adamw(Queue& q, AdamWStep const& step);

}  // namespace tessera::kernels
