#pragma once
/// The fused Adagrad update of a rank's partition.

#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::kernels {

/// State sum (s):  g = gradient + weight_decay * p;  s <- s + g^2;  p <- p - lr * g / (sqrt(s) +
/// epsilon) in the order of operations of torch.optim.Adagrad, in fp32, with lr = learning rate /
/// rate_divisor. Source: Duchi, Hazan & Singer, "Adaptive Subgradient Methods", JMLR 2011.
/// Traffic 12 B read + 8 B written (+2).
struct AdagradStep : ElementwiseUpdate {
  double epsilon = 1e-10;
  double initial_sum = 0.0;   ///< added to s: initial_accumulator_value in step 1, else 0
  double rate_divisor = 1.0;  ///< of the learning rate: 1 + (t-1) lr_decay
};
void adagrad(Queue& q, AdagradStep const& step);

}  // namespace tessera::kernels
