#include "tessera/kernels/lion.hpp"

#include "detail/segment_update.hpp"

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

}  // namespace

void lion(Queue& q, LionStep const& step) {
  LionRule::Coefficients const coefficients{
      1.0f, static_cast<float>(step.beta1), static_cast<float>(1.0 - step.beta1),
      static_cast<float>(step.beta2), static_cast<float>(1.0 - step.beta2)};
  launch_segments<LionRule>(
      q, "tessera::kernels::lion", step, coefficients, [](UpdateSegment const& s) {
        return LionRule::Rates{static_cast<float>(1.0 - s.learning_rate * s.weight_decay),
                               static_cast<float>(s.learning_rate)};
      });
}

}  // namespace tessera::kernels
