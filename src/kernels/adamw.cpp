#include "tessera/kernels/adamw.hpp"

#include <cmath>

#include "detail/adamw_rule.hpp"
#include "detail/optimizer_update.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

AdamWRule::Coefficients coefficients_of(AdamWStep const& s) {
  return {static_cast<float>(s.gradient_factor),
          static_cast<float>(s.beta1),
          static_cast<float>(1.0 - s.beta1),
          static_cast<float>(s.beta2),
          static_cast<float>(1.0 - s.beta2),
          static_cast<float>(1.0 / std::sqrt(s.bias_correction2)),
          static_cast<float>(s.epsilon)};
}

AdamWRule::Rates rates_of(AdamWStep const& s, AdamWSegment const& segment) {
  double const lr = segment.learning_rate, decay = segment.weight_decay;
  return {static_cast<float>(s.adam_l2 ? 1.0 : 1.0 - lr * decay),
          static_cast<float>(s.adam_l2 ? decay : 0.0), static_cast<float>(lr / s.bias_correction1)};
}

void check(AdamWStep const& s) {
  TESSERA_VALIDATE(s.bias_correction1 > 0.0 && s.bias_correction2 > 0.0, InternalError,
                   "AdamW got bias corrections ", s.bias_correction1, " and ", s.bias_correction2,
                   "; 1 - beta^t is positive from step t = 1 on");
  for (auto const& segment : s.segments)
    TESSERA_VALIDATE(
        segment.numel == 0 || (segment.numel > 0 && segment.master && segment.exp_avg &&
                               segment.exp_avg_sq && segment.gradient),
        InternalError, "AdamW got a segment of ", segment.numel,
        " elements without its weights, moments or gradient");
}

}  // namespace

void adamw(Queue& q, AdamWStep const& step) {
  check(step);
  UpdateStep<AdamWRule> update{"tessera::kernels::adamw", coefficients_of(step), step.control,
                               step.gradient_dtype,       step.weights_dtype,    {}};
  update.runs.reserve(step.segments.size());
  for (auto const& s : step.segments)
    update.runs.push_back({s.master,
                           {s.exp_avg, s.exp_avg_sq},
                           s.gradient,
                           s.weights_out,
                           s.numel,
                           rates_of(step, s)});
  launch_update(q, update);
}

}  // namespace tessera::kernels
