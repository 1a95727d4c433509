#pragma once
/// The steps of 1-bit LAMB after its warm-up, and what the warm-up keeps for them. Source: Li et
/// al., "1-bit LAMB: Communication Efficient Large-Scale Large-Batch Training with LAMB's
/// Convergence Speed", 2021, algorithm 1, in DeepSpeed's form.

#include <vector>

#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::kernels {

/// Values of a parameter that every rank holds, in memory of the queue's space.
struct OneBitLambScalars {
  float* coefficient = nullptr;  ///< frozen: running mean of the ratios of the warm-up
  float* factor = nullptr;       ///< that changes the coefficient after it
  /// 1 / root of the mean square of the momentum at the freeze; 0: a parameter without momentum,
  /// which takes no part in the exchange.
  float* scaling = nullptr;
};

struct OneBitLambStep : ElementwiseUpdate {
  std::vector<OneBitLambScalars> parameters;  ///< parallel to segments, each a complete parameter
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool epsilon_inside_root = false;
  double factor_min = 0.5, factor_max = 4.0, factor_threshold = 0.1;
};

/// In the warm-up, with r as in lamb():  coefficient <- beta * coefficient + (1-beta) r, unless r
/// is 1.
struct LambCoefficient {
  double const* sums;  ///< as LambStep::sums
  float* coefficient;
};
struct LambCoefficients {
  std::vector<LambCoefficient> parameters;
  double beta = 0.9, min_coeff = 0.01, max_coeff = 10.0;
  GradientControl const* control = nullptr;  ///< null: the step is not skipped
};
void lamb_coefficients(Queue& q, LambCoefficients const& step);

/// Before the first exchange. States exp_avg (m), exp_avg_sq (v), exp_avg_sq_fresh (f):  f <- v,
/// factor <- 1, and scaling from m.
void one_bit_lamb_begin(Queue& q, OneBitLambStep const& step);
/// States exp_avg (m, unchanged) and worker_error (e):
///   e <- e + scaling * (m + (1-beta1) (g - m)).
void one_bit_lamb_momentum(Queue& q, OneBitLambStep const& step);
/// States m and f, the gradient is the exchanged momentum x:  n = x / scaling,
///   f <- beta2 f + (1-beta2) ((n - beta1 m) / (1-beta1))^2;  m <- n.
void one_bit_lamb_moments(Queue& q, OneBitLambStep const& step);
/// States m, v, f, all unchanged. With d(s) = sqrt(s) + epsilon, the factor becomes the largest
/// d(v) / d(f) of the parameter, and with weight decay a mean of that and 1 with the weight
/// |m/d(v)| / |m/d(v) + weight_decay * p|, at most 1; it stays in [factor_min, factor_max] and
/// changes by at most factor_threshold of itself in a step.
void one_bit_lamb_factors(Queue& q, OneBitLambStep const& step);
/// States m and v:  p <- p - lr * coefficient * factor * (m/d(v) + weight_decay * p).
void one_bit_lamb(Queue& q, OneBitLambStep const& step);

}  // namespace tessera::kernels
