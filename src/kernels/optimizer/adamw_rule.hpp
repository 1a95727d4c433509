#pragma once
/// The AdamW update of one element.

#include <cmath>

#include "optimizer/optimizer_rule.hpp"

namespace tessera::kernels::detail {

struct AdamWRule {
  /// What a step multiplies with: computed in double, rounded once to fp32.
  struct Coefficients {
    float gradient_factor;
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float inverse_sqrt_bias_correction2;  ///< 1 / sqrt(1 - beta2^t)
    float epsilon;
  };
  /// What a step multiplies the values of one segment with.
  struct Rates {
    float keep;       ///< 1 - lr * weight_decay; 1 with L2 decay
    float l2;         ///< weight_decay with L2 decay; else 0
    float step_size;  ///< lr / (1 - beta1^t)
  };
  static constexpr int states = 2;  ///< exp_avg, exp_avg_sq

  /// Updates p, m and v with gradient g.
  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& m, float& v) {
    g = g * c.gradient_factor;
    g = multiply_add(r.l2, p, g);
    p = p * r.keep;
    m = multiply_add(c.one_minus_beta1, g - m, m);
    v = multiply_add(c.one_minus_beta2 * g, g, v * c.beta2);
    float const denominator =
        multiply_add(std::sqrt(v), c.inverse_sqrt_bias_correction2, c.epsilon);
    p = multiply_add(-r.step_size, m / denominator, p);
  }
};

}  // namespace tessera::kernels::detail
