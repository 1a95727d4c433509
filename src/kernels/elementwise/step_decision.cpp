#include "tessera/kernels/elementwise/gradient_statistics.hpp"

#include <limits>

#include "launch/launch.hpp"

namespace tessera::kernels {
namespace {

struct NormAndOverflow {
  StepDecision* out;
  double const* sums;
  GradientLimits rule;

  KOKKOS_FUNCTION void operator()(std::int64_t) const {
    bool const finite = !(sums[1] > 0.0);
    double const norm = finite ? Kokkos::sqrt(sums[0] / rule.gradients) / rule.loss_scale
                               : std::numeric_limits<double>::infinity();
    double const room = rule.max_grad_norm / (norm + 1e-6);
    double const clip = rule.max_grad_norm > 0.0 && room < 1.0 ? room : 1.0;
    out->norm = norm;
    out->finite = finite ? 1 : 0;
    out->control.gradient_factor = clip / rule.loss_scale;
    out->control.skip = !finite && rule.skip_on_nonfinite ? 1 : 0;
  }
};

}  // namespace

void compute_norm_and_overflow(Queue& q, StepDecision* out, double const* sums,
                               GradientLimits const& rule) {
  detail::parallel_for(q, "tessera::kernels::compute_norm_and_overflow", 1,
                       NormAndOverflow{out, sums, rule});
}

}  // namespace tessera::kernels
