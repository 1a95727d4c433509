#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include "optimizer/segment_update.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

/// Values of a step and of a segment that both rules of SGD use.
struct SgdValues {
  struct Coefficients {
    float gradient_factor;
    float momentum;
    float one_minus_dampening;  ///< 1 in the first step
    bool nesterov;
  };
  struct Rates {
    float l2;  ///< weight_decay
    float learning_rate;
  };
};

struct SgdRule : SgdValues {
  static constexpr int states = 0;

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p) {
    g = multiply_add(r.l2, p, g * c.gradient_factor);
    p = multiply_add(-r.learning_rate, g, p);
  }
};

struct SgdMomentumRule : SgdValues {
  static constexpr int states = 1;  ///< momentum_buffer

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& b) {
    g = multiply_add(r.l2, p, g * c.gradient_factor);
    b = multiply_add(c.one_minus_dampening, g, b * c.momentum);
    float const direction = c.nesterov ? multiply_add(c.momentum, b, g) : b;
    p = multiply_add(-r.learning_rate, direction, p);
  }
};

template <class Rule>
void launch(Queue& q, SgdStep const& step) {
  SgdValues::Coefficients const coefficients{
      1.0f, static_cast<float>(step.momentum),
      static_cast<float>(step.first ? 1.0 : 1.0 - step.dampening),
      step.momentum_form == Momentum::nesterov};
  launch_segments<Rule>(q, "tessera::kernels::sgd", step, coefficients, [](UpdateSegment const& s) {
    return SgdValues::Rates{static_cast<float>(s.weight_decay),
                            static_cast<float>(s.learning_rate)};
  });
}

}  // namespace

void sgd(Queue& q, SgdStep const& step) {
  if (step.momentum_form == Momentum::none)
    launch<SgdRule>(q, step);
  else
    launch<SgdMomentumRule>(q, step);
}

}  // namespace tessera::kernels
