#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include <cmath>

#include "optimizer/quantized_launch.hpp"
#include "optimizer/segment_update.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

/// Values of a step and of a segment that all forms of RMSprop use.
struct RmsPropValues {
  struct Coefficients {
    float gradient_factor;
    float alpha, one_minus_alpha;
    float epsilon;
    float momentum;
  };
  struct Rates {
    float l2;  ///< weight_decay
    float learning_rate;
  };

  /// The gradient with weight decay, which enters the mean of the squares @p s.
  static KOKKOS_INLINE_FUNCTION float accumulate(Coefficients const& c, Rates const& r, float g,
                                                 float p, float& s) {
    g = multiply_add(r.l2, p, g * c.gradient_factor);
    s = multiply_add(c.one_minus_alpha * g, g, s * c.alpha);
    return g;
  }
  /// g / (sqrt(variance) + epsilon)
  static KOKKOS_INLINE_FUNCTION float scaled(Coefficients const& c, float g, float variance) {
    return g / (std::sqrt(variance) + c.epsilon);
  }
  /// The variance about the mean @p a, which g enters.
  static KOKKOS_INLINE_FUNCTION float center(Coefficients const& c, float g, float s, float& a) {
    a = multiply_add(c.one_minus_alpha, g - a, a);
    return multiply_add(-a, a, s);
  }
  static KOKKOS_INLINE_FUNCTION void descend(Rates const& r, float direction, float& p) {
    p = multiply_add(-r.learning_rate, direction, p);
  }
};

struct RmsPropRule : RmsPropValues {
  static constexpr int states = 1;  ///< square_avg

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& s) {
    g = accumulate(c, r, g, p, s);
    descend(r, scaled(c, g, s), p);
  }
};

struct RmsPropMomentumRule : RmsPropValues {
  static constexpr int states = 2;  ///< square_avg, momentum_buffer

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& s, float& b) {
    g = accumulate(c, r, g, p, s);
    b = multiply_add(b, c.momentum, scaled(c, g, s));
    descend(r, b, p);
  }
};

struct RmsPropCenteredRule : RmsPropValues {
  static constexpr int states = 2;  ///< square_avg, grad_avg

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& s, float& a) {
    g = accumulate(c, r, g, p, s);
    descend(r, scaled(c, g, center(c, g, s, a)), p);
  }
};

struct RmsPropCenteredMomentumRule : RmsPropValues {
  static constexpr int states = 3;  ///< square_avg, momentum_buffer, grad_avg

  template <class... States>
  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, States&... states_of_element) {
    float* const x[] = {&states_of_element...};
    g = accumulate(c, r, g, p, *x[0]);
    *x[1] = multiply_add(*x[1], c.momentum, scaled(c, g, center(c, g, *x[0], *x[2])));
    descend(r, *x[1], p);
  }
};

RmsPropValues::Coefficients coefficients_of(RmsPropStep const& step) {
  return {1.0f, static_cast<float>(step.alpha), static_cast<float>(1.0 - step.alpha),
          static_cast<float>(step.epsilon), static_cast<float>(step.momentum)};
}

RmsPropValues::Rates rates_of(UpdateSegment const& s) {
  return {static_cast<float>(s.weight_decay), static_cast<float>(s.learning_rate)};
}

template <class Rule>
void launch(Queue& q, RmsPropStep const& step) {
  launch_segments<Rule>(q, "tessera::kernels::rmsprop", step, coefficients_of(step), rates_of);
}

}  // namespace

void rmsprop(Queue& q, RmsPropStep const& step) {
  bool const momentum = step.momentum != 0.0;
  if (step.centered)
    momentum ? launch<RmsPropCenteredMomentumRule>(q, step) : launch<RmsPropCenteredRule>(q, step);
  else
    momentum ? launch<RmsPropMomentumRule>(q, step) : launch<RmsPropRule>(q, step);
}

void rmsprop_8bit(Queue& q, RmsPropStep const& step,
                  std::vector<QuantizedSegment> const& segments) {
  launch_quantized<RmsPropRule, DynamicMap::signed_values>(
      q, "tessera::kernels::rmsprop_8bit", step, segments, coefficients_of(step), rates_of);
}

}  // namespace tessera::kernels
