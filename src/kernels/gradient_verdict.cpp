#include "tessera/kernels/gradient_verdict.hpp"

#include <limits>

#include "detail/launch.hpp"

namespace tessera::kernels {
namespace {

struct Judge {
  GradientVerdict* out;
  double const* sums;
  GradientRule rule;

  KOKKOS_FUNCTION void operator()(std::int64_t) const {
    bool const finite = !(sums[1] > 0.0);
    double const norm =
        finite ? Kokkos::sqrt(sums[0]) / rule.loss_scale : std::numeric_limits<double>::infinity();
    double const room = rule.max_grad_norm / (norm + 1e-6);
    double const clip = rule.max_grad_norm > 0.0 && room < 1.0 ? room : 1.0;
    out->norm = norm;
    out->finite = finite ? 1 : 0;
    out->control.gradient_factor = clip / rule.loss_scale;
    out->control.skip = !finite && rule.skip_on_nonfinite ? 1 : 0;
  }
};

}  // namespace

void judge_gradients(Queue& q, GradientVerdict* out, double const* sums, GradientRule const& rule) {
  detail::parallel_for(q, "tessera::kernels::judge_gradients", 1, Judge{out, sums, rule});
}

}  // namespace tessera::kernels
