#pragma once
/// The fused parts of the steps of 1-bit Adam and 0/1 Adam that exchange signs, before and after
/// the exchange.

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

/// State worker_error (e):  e <- e + g. Traffic 8 B read + 4 B written.
void one_bit_gradient(Queue& q, ElementwiseUpdate const& step);
/// States exp_avg (m) and exp_avg_sq (v, unchanged), the gradient is the exchanged gradient x, to
/// which the gradient factor does not apply:  m <- m + (1-beta1) (x - m);  then as one_bit_adam().
void zero_one_adam(Queue& q, OneBitAdamStep const& step);

struct ZeroOneStep : OneBitAdamStep {
  bool opens_interval = false;  ///< the weights before this step are those that all ranks share
  double rate_sum = 0.0;        ///< of the interval's steps, positive
};
/// A local step. States exp_avg (m), exp_avg_sq (v, unchanged), worker_error (e), shared_weights
/// (b), with d = sqrt(v) + epsilon:  b <- p if the step opens an interval;
///   m <- m + (1-beta1) (g - m);  u = m + weight_decay * p * d;  e <- e - lr * u;  p <- p - lr u/d.
/// Traffic 24 B read + 12 B written (+2).
void zero_one_local(Queue& q, ZeroOneStep const& step);
/// The end of an interval. States m, v, b as above, the gradient is the exchanged sum x of -lr * u:
///   m <- -x / rate_sum;  p <- b + x / d;  b <- p. Source of both: Lu et al., "Maximizing
/// Communication Efficiency for Large-scale Training via 0/1 Adam", ICLR'23, algorithm 1, in
/// DeepSpeed's form. Traffic 16 B read + 12 B written (+2).
void zero_one_exchange(Queue& q, ZeroOneStep const& step);

}  // namespace tessera::kernels
