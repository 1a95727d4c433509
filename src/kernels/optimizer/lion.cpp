#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include "optimizer/quantized_launch.hpp"
#include "optimizer/segment_update.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

struct LionRule {
  struct Coefficients {
    float gradient_factor;
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
  };
  struct Rates {
    float keep;  ///< 1 - lr * weight_decay
    float learning_rate;
  };
  static constexpr int states = 1;  ///< exp_avg

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& m) {
    g = g * c.gradient_factor;
    float const direction = multiply_add(c.one_minus_beta1, g, m * c.beta1);
    float const sign = direction > 0.0f ? 1.0f : direction < 0.0f ? -1.0f : direction;
    p = multiply_add(-r.learning_rate, sign, p * r.keep);
    m = multiply_add(c.one_minus_beta2, g, m * c.beta2);
  }
};

LionRule::Coefficients coefficients_of(LionStep const& step) {
  return {1.0f, static_cast<float>(step.beta1), static_cast<float>(1.0 - step.beta1),
          static_cast<float>(step.beta2), static_cast<float>(1.0 - step.beta2)};
}

LionRule::Rates rates_of(UpdateSegment const& s) {
  return {static_cast<float>(1.0 - s.learning_rate * s.weight_decay),
          static_cast<float>(s.learning_rate)};
}

}  // namespace

void lion(Queue& q, LionStep const& step) {
  launch_segments<LionRule>(q, "tessera::kernels::lion", step, coefficients_of(step), rates_of);
}

void lion_8bit(Queue& q, LionStep const& step, std::vector<QuantizedSegment> const& segments) {
  launch_quantized<LionRule, DynamicMap::signed_values>(q, "tessera::kernels::lion_8bit", step,
                                                        segments, coefficients_of(step), rates_of);
}

}  // namespace tessera::kernels
