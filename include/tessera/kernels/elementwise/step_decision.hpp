#pragma once
/// Computes the gradient norm, the clip factor and the overflow flag where the kernels run, so that
/// the update can be enqueued before the host knows them.

#include <cstdint>

#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

/// What an update does with the gradients. A device reads it in one access.
struct alignas(16) GradientControl {
  double gradient_factor = 1.0;  ///< unscales and clips
  std::int32_t skip = 0;         ///< not 0: weights and states stay as they are
};

struct StepDecision {
  double norm = 0.0;  ///< of the unscaled gradients; infinite when an element is not finite
  std::int32_t finite = 1;
  GradientControl control;
};

/// What the norm is compared with.
struct GradientLimits {
  double loss_scale = 1.0;
  double max_grad_norm = 0.0;  ///< 0: no clipping
  bool skip_on_nonfinite = true;
  int gradients = 1;  ///< whose squares sums[0] adds: the norm is their root mean square
};

/// With sums as gradient_statistics() leaves them, added over the ranks:
///   norm = sqrt(sums[0] / gradients) / loss_scale;  control.gradient_factor = min(1, max_grad_norm
///   / (norm + 1e-6)) / loss_scale;  control.skip when sums[1] > 0 and the limits say so
/// in double. Source: torch.nn.utils.clip_grad_norm_. Both arguments are in memory of the
/// queue's space.
void compute_norm_and_overflow(Queue& q, StepDecision* out, double const* sums,
                               GradientLimits const& rule);

}  // namespace tessera::kernels
