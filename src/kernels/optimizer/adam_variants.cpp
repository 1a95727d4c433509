#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include <cmath>

#include "optimizer/segment_update.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

struct AdamaxRule {
  struct Coefficients {
    float gradient_factor;
    float one_minus_beta1;
    float beta2;
    float epsilon;
  };
  struct Rates {
    float l2;         ///< weight_decay
    float step_size;  ///< lr / (1 - beta1^t)
  };
  static constexpr int states = 2;  ///< exp_avg, exp_inf

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& m, float& u) {
    g = multiply_add(r.l2, p, g * c.gradient_factor);
    m = multiply_add(c.one_minus_beta1, g - m, m);
    float const decayed = u * c.beta2, now = std::abs(g) + c.epsilon;
    u = decayed > now ? decayed : now;
    p = multiply_add(-r.step_size, m / u, p);
  }
};

struct AdamVariantRule {
  struct Coefficients {
    float gradient_factor;
    float one_minus_beta1;
    float beta2, one_minus_beta2;
    float gradient_share, momentum_share;
    float root_factor, offset;
  };
  struct Rates {
    float keep;  ///< 1 - lr * weight_decay; 1 with L2 decay
    float l2;    ///< weight_decay with L2 decay; else 0
    float learning_rate;
  };
  static constexpr int states = 2;  ///< exp_avg, exp_avg_sq

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& m, float& v) {
    g = multiply_add(r.l2, p, g * c.gradient_factor);
    p = p * r.keep;
    m = multiply_add(c.one_minus_beta1, g - m, m);
    v = multiply_add(c.one_minus_beta2 * g, g, v * c.beta2);
    float const direction = multiply_add(c.gradient_share, g, m * c.momentum_share);
    p = multiply_add(-r.learning_rate,
                     direction / multiply_add(std::sqrt(v), c.root_factor, c.offset), p);
  }
};

}  // namespace

void adamax(Queue& q, AdamaxStep const& step) {
  TESSERA_VALIDATE(step.bias_correction1 > 0.0, InternalError, "Adamax got bias correction ",
                   step.bias_correction1, "; 1 - beta^t is positive from step t = 1 on");
  AdamaxRule::Coefficients const coefficients{1.0f, static_cast<float>(1.0 - step.beta1),
                                              static_cast<float>(step.beta2),
                                              static_cast<float>(step.epsilon)};
  launch_segments<AdamaxRule>(
      q, "tessera::kernels::adamax", step, coefficients, [&](UpdateSegment const& s) {
        return AdamaxRule::Rates{static_cast<float>(s.weight_decay),
                                 static_cast<float>(s.learning_rate / step.bias_correction1)};
      });
}

void adam_variant(Queue& q, AdamVariantStep const& step) {
  AdamVariantRule::Coefficients const coefficients{1.0f,
                                                   static_cast<float>(1.0 - step.beta1),
                                                   static_cast<float>(step.beta2),
                                                   static_cast<float>(1.0 - step.beta2),
                                                   static_cast<float>(step.gradient_share),
                                                   static_cast<float>(step.momentum_share),
                                                   static_cast<float>(step.root_factor),
                                                   static_cast<float>(step.offset)};
  bool const decoupled = step.decay == Decay::decoupled;
  launch_segments<AdamVariantRule>(
      q, "tessera::kernels::adam_variant", step, coefficients, [&](UpdateSegment const& s) {
        double const decay = s.weight_decay;
        return AdamVariantRule::Rates{
            static_cast<float>(decoupled ? 1.0 - s.learning_rate * decay : 1.0),
            static_cast<float>(decoupled ? 0.0 : decay), static_cast<float>(s.learning_rate)};
      });
}

}  // namespace tessera::kernels
