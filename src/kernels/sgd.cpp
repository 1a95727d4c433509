#include "tessera/kernels/sgd.hpp"

#include "detail/optimizer_update.hpp"

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

SgdValues::Coefficients coefficients_of(SgdStep const& s) {
  return {static_cast<float>(s.gradient_factor), static_cast<float>(s.momentum),
          static_cast<float>(s.first ? 1.0 : 1.0 - s.dampening),
          s.momentum_form == Momentum::nesterov};
}

void check(SgdStep const& s) {
  for (auto const& segment : s.segments)
    TESSERA_VALIDATE(
        segment.numel == 0 || (segment.numel > 0 && segment.master && segment.gradient &&
                               (segment.momentum_buffer || s.momentum_form == Momentum::none)),
        InternalError, "SGD got a segment of ", segment.numel,
        " elements without its weights, momentum or gradient");
}

template <class Rule>
void launch(Queue& q, SgdStep const& step) {
  UpdateStep<Rule> update{"tessera::kernels::sgd", coefficients_of(step), step.control,
                          step.gradient_dtype,     step.weights_dtype,    {}};
  update.runs.reserve(step.segments.size());
  for (auto const& s : step.segments)
    update.runs.push_back(
        {s.master,
         {s.momentum_buffer},
         s.gradient,
         s.weights_out,
         s.numel,
         {static_cast<float>(s.weight_decay), static_cast<float>(s.learning_rate)}});
  launch_update(q, update);
}

}  // namespace

void sgd(Queue& q, SgdStep const& step) {
  check(step);
  if (step.momentum_form == Momentum::none)
    launch<SgdRule>(q, step);
  else
    launch<SgdMomentumRule>(q, step);
}

}  // namespace tessera::kernels
