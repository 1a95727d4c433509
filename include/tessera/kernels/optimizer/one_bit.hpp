#pragma once
/// The fused parts of a step of 1-bit Adam that exchanges signs, before and after the exchange.

#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::kernels {

struct OneBitAdamStep : ElementwiseUpdate {
  double beta1 = 0.9, epsilon = 1e-8;
};
/// States exp_avg (m) and worker_error (e):  m <- m + (1-beta1) (g - m);  e <- e + m.
/// Traffic 12 B read + 8 B written.
void one_bit_momentum(Queue& q, OneBitAdamStep const& step);
/// States exp_avg (m) and exp_avg_sq (v, unchanged), the gradient is the exchanged momentum x, to
/// which the gradient factor does not apply:  m <- x;  p <- p - lr * weight_decay * p;  p <- p - lr
/// * m / (sqrt(v) + epsilon). Source: Tang et al., "1-bit Adam", ICML'21, algorithm 1, with
/// DeepSpeed's decay. Traffic 16 B read + 12 B written (+2).
void one_bit_adam(Queue& q, OneBitAdamStep const& step);

}  // namespace tessera::kernels
