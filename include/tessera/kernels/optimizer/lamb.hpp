#pragma once
/// The LAMB update of a rank's partition, with the norms of complete parameters.

#include <cstddef>

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

}  // namespace tessera::kernels
