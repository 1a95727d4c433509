#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include <cmath>

#include "optimizer/segment_update.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

struct AdagradRule {
  struct Coefficients {
    float gradient_factor;
    float initial_sum;
    float epsilon;
  };
  struct Rates {
    float l2;  ///< weight_decay
    float learning_rate;
  };
  static constexpr int states = 1;  ///< sum

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& s) {
    g = multiply_add(r.l2, p, g * c.gradient_factor);
    s = multiply_add(g, g, s + c.initial_sum);
    p = multiply_add(-r.learning_rate, g / (std::sqrt(s) + c.epsilon), p);
  }
};

}  // namespace

void adagrad(Queue& q, AdagradStep const& step) {
  AdagradRule::Coefficients const coefficients{1.0f, static_cast<float>(step.initial_sum),
                                               static_cast<float>(step.epsilon)};
  launch_segments<AdagradRule>(
      q, "tessera::kernels::adagrad", step, coefficients, [&](UpdateSegment const& s) {
        return AdagradRule::Rates{static_cast<float>(s.weight_decay),
                                  static_cast<float>(s.learning_rate / step.rate_divisor)};
      });
}

}  // namespace tessera::kernels
