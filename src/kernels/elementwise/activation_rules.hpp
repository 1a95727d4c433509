#pragma once
/// Activation functions and their slopes, of one element.

#include "launch/fast_math.hpp"
#include "tessera/kernels/elementwise/activation.hpp"

namespace tessera::kernels::detail {

/// 0.5 x (1 + tanh(u)) = x s with s = logistic(2u); d/dx (x s) = s + x s (1 - s) 2u'.
struct GeluNew {
  static constexpr float slope_of_u = 2.0f * 0.7978845608f;  // 2 sqrt(2/pi)
  static constexpr float cubic = 0.044715f;
  TESSERA_FUNCTION static float value(float x) {
    return x * logistic(slope_of_u * (x + cubic * x * x * x));
  }
  TESSERA_FUNCTION static float slope(float x) {
    float const s = logistic(slope_of_u * (x + cubic * x * x * x));
    float const two_du = slope_of_u * (1.0f + 3.0f * cubic * x * x);
    return s + x * s * (1.0f - s) * two_du;
  }
};

/// x Phi(x); d/dx = Phi(x) + x phi(x).
struct Gelu {
  TESSERA_FUNCTION static float distribution(float x) {
    return 0.5f * (1.0f + fast_erf(x * 0.70710678f));
  }
  TESSERA_FUNCTION static float value(float x) { return x * distribution(x); }
  TESSERA_FUNCTION static float slope(float x) {
    return multiply_add(x, 0.39894228f * fast_exp(-0.5f * x * x), distribution(x));
  }
};

/// x s with s = logistic(k x); d/dx = s + k x s (1 - s).
template <int Thousandths>
struct Swish {
  static constexpr float k = static_cast<float>(Thousandths) / 1000.0f;
  TESSERA_FUNCTION static float value(float x) { return x * logistic(k * x); }
  TESSERA_FUNCTION static float slope(float x) {
    float const s = logistic(k * x);
    return s + k * x * (s * (1.0f - s));
  }
};
using Silu = Swish<1000>;
using QuickGelu = Swish<1702>;

/// NaN stays NaN.
struct Relu {
  TESSERA_FUNCTION static float value(float x) { return x < 0.0f ? 0.0f : x; }
  TESSERA_FUNCTION static float slope(float x) { return x > 0.0f ? 1.0f : 0.0f; }
};
struct ReluSquared {
  TESSERA_FUNCTION static float value(float x) { return Relu::value(x) * Relu::value(x); }
  TESSERA_FUNCTION static float slope(float x) { return 2.0f * Relu::value(x); }
};

/// Calls @p call with an object of the rule.
template <class Call>
void with_activation(Activation f, Call const& call) {
  switch (f) {
    case Activation::gelu_new:
      return call(GeluNew());
    case Activation::gelu:
      return call(Gelu());
    case Activation::silu:
      return call(Silu());
    case Activation::relu:
      return call(Relu());
    case Activation::quick_gelu:
      return call(QuickGelu());
    case Activation::relu_squared:
      return call(ReluSquared());
  }
}

}  // namespace tessera::kernels::detail
