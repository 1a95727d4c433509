#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include <cmath>

#include "optimizer/segment_update.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

struct MomentumRule {
  struct Coefficients {
    float gradient_factor;
    float one_minus_beta1;
  };
  struct Rates {};
  static constexpr int states = 2;  ///< exp_avg, worker_error

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const&, float g, float&,
                                             float& m, float& error) {
    g = multiply_add(g, c.gradient_factor, 0.0f);  // rounded here in every loop
    m = multiply_add(c.one_minus_beta1, g - m, m);
    error = error + m;
  }
};

struct FrozenAdamRule {
  struct Coefficients {
    float gradient_factor;  ///< factor of gradients, not of what the ranks have exchanged
    float epsilon;
  };
  struct Rates {
    float keep;  ///< 1 - lr * weight_decay
    float step_size;
  };
  static constexpr int states = 2;  ///< exp_avg, exp_avg_sq

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float x,
                                             float& p, float& m, float& v) {
    m = x;
    p = multiply_add(-r.step_size, m / (std::sqrt(v) + c.epsilon), p * r.keep);
  }
};

}  // namespace

void one_bit_momentum(Queue& q, OneBitAdamStep const& step) {
  launch_segments<MomentumRule>(q, "tessera::kernels::one_bit_momentum", step,
                                {1.0f, static_cast<float>(1.0 - step.beta1)},
                                [](UpdateSegment const&) { return MomentumRule::Rates{}; });
}

void one_bit_adam(Queue& q, OneBitAdamStep const& step) {
  launch_segments<FrozenAdamRule>(
      q, "tessera::kernels::one_bit_adam", step, {1.0f, static_cast<float>(step.epsilon)},
      [](UpdateSegment const& s) {
        return FrozenAdamRule::Rates{static_cast<float>(1.0 - s.learning_rate * s.weight_decay),
                                     static_cast<float>(s.learning_rate)};
      });
}

}  // namespace tessera::kernels
