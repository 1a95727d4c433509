#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include <cmath>

#include "optimizer/adamw_rule.hpp"
#include "optimizer/quantized_launch.hpp"
#include "optimizer/segment_update.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

AdamWRule::Coefficients coefficients_of(AdamWStep const& s) {
  return {1.0f,
          static_cast<float>(s.beta1),
          static_cast<float>(1.0 - s.beta1),
          static_cast<float>(s.beta2),
          static_cast<float>(1.0 - s.beta2),
          static_cast<float>(1.0 / std::sqrt(s.bias_correction2)),
          static_cast<float>(s.epsilon)};
}

AdamWRule::Rates rates_of(AdamWStep const& s, UpdateSegment const& segment) {
  double const lr = segment.learning_rate, decay = segment.weight_decay;
  return {static_cast<float>(s.adam_l2 ? 1.0 : 1.0 - lr * decay),
          static_cast<float>(s.adam_l2 ? decay : 0.0), static_cast<float>(lr / s.bias_correction1)};
}

void check(AdamWStep const& step) {
  TESSERA_VALIDATE(step.bias_correction1 > 0.0 && step.bias_correction2 > 0.0, InternalError,
                   "AdamW got bias corrections ", step.bias_correction1, " and ",
                   step.bias_correction2, "; 1 - beta^t is positive from step t = 1 on");
}

}  // namespace

void adamw(Queue& q, AdamWStep const& step) {
  check(step);
  launch_segments<AdamWRule>(q, "tessera::kernels::adamw", step, coefficients_of(step),
                             [&](UpdateSegment const& s) { return rates_of(step, s); });
}

void adamw_8bit(Queue& q, AdamWStep const& step, std::vector<QuantizedSegment> const& segments) {
  check(step);
  launch_quantized<AdamWRule, DynamicMap::signed_values, DynamicMap::unsigned_values>(
      q, "tessera::kernels::adamw_8bit", step, segments, coefficients_of(step),
      [&](UpdateSegment const& s) { return rates_of(step, s); });
}

}  // namespace tessera::kernels
