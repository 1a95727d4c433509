#pragma once
/// The fused AdamW update of a rank's partition.

#include "tessera/kernels/optimizer/quantized_update.hpp"

namespace tessera::kernels {

/// States exp_avg (m) and exp_avg_sq (v):
///   m <- beta1 m + (1-beta1) g;  v <- beta2 v + (1-beta2) g^2
///   decoupled: p <- p - lr * weight_decay * p, then p <- p - lr * (m / (1-beta1^t)) / (sqrt(v /
///   (1-beta2^t)) + epsilon) (adam_l2: g += weight_decay * p first, no decoupled decay;
///   bias_correction false: the divisors are 1)
/// in the order of operations of torch.optim.AdamW, in fp32; coefficients such as 1 - beta1 are
/// computed in double and rounded once. Source  Loshchilov & Hutter, "Decoupled Weight Decay
/// Regularization", ICLR 2019, Alg. 2.  Traffic 16 B read + 12 B written (+2).
struct AdamWStep : ElementwiseUpdate {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double bias_correction1 = 1.0,
         bias_correction2 = 1.0;  ///< 1 - beta^t, computed in double by the caller
  bool adam_l2 = false;
};
void adamw(Queue& q, AdamWStep const& step);
/// The same with m (signed map) and v (unsigned map) in 8 bits. @p step has no segments. Traffic
/// 10 B read + 6 B written (+2).
void adamw_8bit(Queue& q, AdamWStep const& step, std::vector<QuantizedSegment> const& segments);

}  // namespace tessera::kernels
