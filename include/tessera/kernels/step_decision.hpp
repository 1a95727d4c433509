#pragma once
/// What becomes of a step, decided where its kernels run: the host reads the decision while the
/// update is under way.

#include <cstdint>

#include "tessera/kernels/adamw.hpp"

namespace tessera::kernels {

struct StepDecision {
  double norm = 0.0;  ///< of the unscaled gradients; infinite when an element is not finite
  std::int32_t finite = 1;
  StepControl control;
};

struct GradientLimits {
  double loss_scale = 1.0;
  double max_grad_norm = 0.0;  ///< 0: no clipping
  bool skip_on_nonfinite = true;
};

/// With sums as gradient_statistics() leaves them, added over the ranks:
///   norm = sqrt(sums[0]) / loss_scale;  control.gradient_factor = min(1, max_grad_norm / (norm +
///   1e-6)) / loss_scale control.skip when sums[1] > 0 and the rule says so
/// in double. Source: torch.nn.utils.clip_grad_norm_. Both arguments lie in memory of the queue's
/// space.
void compute_norm_and_overflow(Queue& q, StepDecision* out, double const* sums,
                               GradientLimits const& rule);

}  // namespace tessera::kernels
