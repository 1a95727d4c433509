#pragma once
/// The fused updates of Adamax, NAdam and RAdam of a rank's partition.

#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::kernels {

/// States exp_avg (m) and exp_inf (u):  g = gradient + weight_decay * p;  m <- m + (1-beta1) (g -
/// m)
///   u <- max(beta2 u, |g| + epsilon);  p <- p - lr / (1-beta1^t) * m / u
/// in the order of operations of torch.optim.Adamax, in fp32. Source: Kingma & Ba, "Adam", ICLR
/// 2015, Alg. 2.
struct AdamaxStep : ElementwiseUpdate {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double bias_correction1 = 1.0;  ///< 1 - beta1^t
};
void adamax(Queue& q, AdamaxStep const& step);

enum class Decay { l2, decoupled };

/// States exp_avg (m) and exp_avg_sq (v), updated as in AdamWStep, then
///   p <- p - lr * (gradient_share * g + momentum_share * m) / (root_factor * sqrt(v) + offset)
/// NAdam: gradient_share = (1 - mu_t) / (1 - prod mu), momentum_share = mu_(t+1) / (1 - prod mu *
/// mu_(t+1)), root_factor = 1 / sqrt(1 - beta2^t), offset = epsilon. RAdam: gradient_share = 0,
/// momentum_share = r_t / (1 - beta1^t), offset = epsilon * root_factor; before the variance is
/// tractable root_factor = 0, offset = 1. Equal to torch.optim up to single roundings, in fp32.
/// Sources: Dozat, "Incorporating Nesterov Momentum into Adam", 2016; Liu et al., "On the Variance
/// of the Adaptive Learning Rate and Beyond", ICLR 2020.
struct AdamVariantStep : ElementwiseUpdate {
  double beta1 = 0.9, beta2 = 0.999;
  double gradient_share = 0.0, momentum_share = 1.0;
  double root_factor = 1.0, offset = 1e-8;
  Decay decay = Decay::l2;
};
void adam_variant(Queue& q, AdamVariantStep const& step);

}  // namespace tessera::kernels
