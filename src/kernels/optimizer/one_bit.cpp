#include "tessera/kernels/optimizer/one_bit.hpp"

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

struct GradientRule {
  struct Coefficients {
    float gradient_factor;
  };
  struct Rates {};
  static constexpr int states = 1;  ///< worker_error

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const&, float g, float&,
                                             float& error) {
    error = multiply_add(g, c.gradient_factor, error);
  }
};

struct FrozenAdamRule {
  struct Coefficients {
    float gradient_factor;  ///< of gradients, not of what the ranks have exchanged
    float epsilon;
    float one_minus_beta1;
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

struct FrozenGradientRule : FrozenAdamRule {
  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float x,
                                             float& p, float& m, float& v) {
    FrozenAdamRule::element(c, r, multiply_add(c.one_minus_beta1, x - m, m), p, m, v);
  }
};

struct LocalRule {
  struct Coefficients {
    float gradient_factor;
    float one_minus_beta1;
    float epsilon;
    float opens_interval;
  };
  struct Rates {
    float keep;  ///< 1 - lr * weight_decay
    float step_size;
    float decay;
  };
  static constexpr int states = 4;  ///< exp_avg, exp_avg_sq, worker_error, shared_weights

  template <class... States>
  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, States&... states_of_element) {
    float* const x[] = {&states_of_element...};
    float &m = *x[0], &error = *x[2], &shared = *x[3];
    g = multiply_add(g, c.gradient_factor, 0.0f);
    m = multiply_add(c.one_minus_beta1, g - m, m);
    float const d = std::sqrt(*x[1]) + c.epsilon;
    shared = c.opens_interval != 0.0f ? p : shared;
    error = multiply_add(-r.step_size, multiply_add(r.decay * p, d, m), error);
    p = multiply_add(-r.step_size, m / d, p * r.keep);
  }
};

struct ExchangeRule {
  struct Coefficients {
    float gradient_factor;  ///< of gradients
    float epsilon;
    float minus_one_over_rates;
  };
  struct Rates {};
  static constexpr int states = 3;  ///< exp_avg, exp_avg_sq, shared_weights

  template <class... States>
  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const&, float exchanged,
                                             float& p, States&... states_of_element) {
    float* const x[] = {&states_of_element...};
    *x[0] = exchanged * c.minus_one_over_rates;
    p = *x[2] + exchanged / (std::sqrt(*x[1]) + c.epsilon);
    *x[2] = p;
  }
};

FrozenAdamRule::Rates frozen_rates(UpdateSegment const& s) {
  return {static_cast<float>(1.0 - s.learning_rate * s.weight_decay),
          static_cast<float>(s.learning_rate)};
}
FrozenAdamRule::Coefficients frozen_coefficients(OneBitAdamStep const& step) {
  return {1.0f, static_cast<float>(step.epsilon), static_cast<float>(1.0 - step.beta1)};
}

}  // namespace

void one_bit_momentum(Queue& q, OneBitAdamStep const& step) {
  launch_segments<MomentumRule>(q, "tessera::kernels::one_bit_momentum", step,
                                {1.0f, static_cast<float>(1.0 - step.beta1)},
                                [](UpdateSegment const&) { return MomentumRule::Rates{}; });
}

void one_bit_adam(Queue& q, OneBitAdamStep const& step) {
  launch_segments<FrozenAdamRule>(q, "tessera::kernels::one_bit_adam", step,
                                  frozen_coefficients(step), frozen_rates);
}

void one_bit_gradient(Queue& q, ElementwiseUpdate const& step) {
  launch_segments<GradientRule>(q, "tessera::kernels::one_bit_gradient", step, {1.0f},
                                [](UpdateSegment const&) { return GradientRule::Rates{}; });
}

void zero_one_adam(Queue& q, OneBitAdamStep const& step) {
  launch_segments<FrozenGradientRule>(q, "tessera::kernels::zero_one_adam", step,
                                      frozen_coefficients(step), frozen_rates);
}

void zero_one_local(Queue& q, ZeroOneStep const& step) {
  launch_segments<LocalRule>(
      q, "tessera::kernels::zero_one_local", step,
      {1.0f, static_cast<float>(1.0 - step.beta1), static_cast<float>(step.epsilon),
       step.opens_interval ? 1.0f : 0.0f},
      [](UpdateSegment const& s) {
        auto const frozen = frozen_rates(s);
        return LocalRule::Rates{frozen.keep, frozen.step_size, static_cast<float>(s.weight_decay)};
      });
}

void zero_one_exchange(Queue& q, ZeroOneStep const& step) {
  TESSERA_VALIDATE(step.rate_sum > 0.0, InternalError, "the learning rates of an interval add up ",
                   "to ", step.rate_sum);
  launch_segments<ExchangeRule>(
      q, "tessera::kernels::zero_one_exchange", step,
      {1.0f, static_cast<float>(step.epsilon), static_cast<float>(-1.0 / step.rate_sum)},
      [](UpdateSegment const&) { return ExchangeRule::Rates{}; });
}

}  // namespace tessera::kernels
