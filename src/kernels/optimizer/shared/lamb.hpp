#pragma once
/// The updates of LAMB and 1-bit LAMB of a rank's partition, with the norms of complete parameters.

#include <cstddef>
#include <vector>

#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::kernels {

/// Sums that LAMB needs of each parameter: squares of its weights, squares of its update.
inline constexpr std::int64_t lamb_sums = 2;

/// States exp_avg (m) and exp_avg_sq (v), updated as in AdamWStep, then with u = m / (sqrt(v) +
/// epsilon) + weight_decay * p (epsilon inside the root on demand)
///   r = |p| / |u| of the complete parameter, in [min_coeff, max_coeff]; 1 when a norm is 0
///   p <- p - rate_factor * lr * r * u
/// in fp32, norms in double. The moments in u are not corrected; rate_factor is sqrt(1-beta2^t) /
/// (1-beta1^t). Sources: You et al., "Large Batch Optimization for Deep Learning", ICLR 2020, Alg.
/// 2, in the form of DeepSpeed's FusedLamb. Traffic of both kernels 32 B read + 12 B written (+2).
struct LambStep : ElementwiseUpdate {
  /// Parallel to segments, each a run of one parameter: lamb_sums doubles, in memory of the queue's
  /// space.
  std::vector<double*> sums;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool epsilon_inside_root = false;
  double min_coeff = 0.01, max_coeff = 10.0;
  double rate_factor = 1.0;
};
/// Writes the segments' own part of their sums; changes nothing else. The bits do not depend on
/// the number of threads.
void lamb_norms(Queue& q, LambStep const& step);
/// Updates with sums that have been added over the ranks.
void lamb(Queue& q, LambStep const& step);

// The steps of 1-bit LAMB after its warm-up, and what the warm-up keeps for them. Source: Li et
// al., "1-bit LAMB: Communication Efficient Large-Scale Large-Batch Training with LAMB's
// Convergence Speed", 2021, algorithm 1, in DeepSpeed's form.

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
