#pragma once
/// Branch-free single-precision functions that compilers vectorize inside a loop (calls into the C
/// library would not be).

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "launch/device_code.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

/// e^x where the result is a normal number, with a relative error below 1.2e-7; elsewhere bits
/// without meaning. @tparam Number float or a vector of floats, @tparam Bits its unsigned integers.
///
/// x = n ln 2 + r with n an integer and |r| <= ln 2 / 2 (ln 2 in two parts, the first exact in
/// products with n); e^r by its minimax polynomial of degree 6 whose first two coefficients are 1;
/// n is added to the exponent bits. Always inline: a call keeps compilers from vectorizing a loop.
template <class Number, class Bits>
[[gnu::always_inline]] TESSERA_FUNCTION inline Number normal_exp(Number const& x) {
  constexpr float to_integer =
      12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the low fraction bits
  Number const shifted = x * 1.44269504f + to_integer;
  Number const n = shifted - to_integer;
  Number const r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  Number p = 1.38145394e-3f * r + 8.36874545e-3f;
  p = p * r + 4.16683890e-2f;
  p = p * r + 1.66665211e-1f;
  p = p * r + 4.99999940e-1f;
  Number const e_r = 1.0f + (r + (r * r) * p);
  Bits const exponent = std::bit_cast<Bits>(shifted) << 23;  // the bits of to_integer fall off
  return std::bit_cast<Number>(std::bit_cast<Bits>(e_r) + exponent);
}

/// normal_exp() of any number. Results below the smallest normal number (x < -87.33) are 0, above
/// the largest (x > 88.72) infinity; NaN stays NaN.
[[gnu::always_inline]] TESSERA_FUNCTION inline float fast_exp(float x) {
  float const in_range = x < -87.33f ? 0.0f : normal_exp<float, std::uint32_t>(x);
  return !(x <= 88.72f) ? x * std::numeric_limits<float>::infinity() : in_range;
}

/// PTX ISA, "ex2.approx.ftz.f32": 2^x with a relative error of 2^-22; results below the smallest
/// normal number are 0. On a host: the exact function with the same flush to zero.
TESSERA_FUNCTION inline float ex2_approx(float x) {
#if defined(TESSERA_PTX)
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  float const out = std::exp2(x);
  return out < std::numeric_limits<float>::min() ? 0.0f : out;
#endif
}
/// PTX ISA, "rcp.approx.ftz.f32": 1/x with a relative error of 2^-23. On a host as ex2_approx().
TESSERA_FUNCTION inline float rcp_approx(float x) {
#if defined(TESSERA_PTX)
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  float const out = 1.0f / x;
  return out < std::numeric_limits<float>::min() ? 0.0f : out;
#endif
}

/// The device's logistic function: with the polynomial and the rounded division GELU on 16-bit
/// numbers would take twice as long as its memory traffic.
TESSERA_FUNCTION inline float logistic_by_instructions(float x) {
  return rcp_approx(1.0f + ex2_approx(x * -1.44269504f));
}

/// 1 / (1 + e^-x), the logistic function.
TESSERA_FUNCTION inline float logistic(float x) {
#if defined(TESSERA_PTX)
  return logistic_by_instructions(x);
#else
  return 1.0f / (1.0f + fast_exp(-x));
#endif
}

/// a b + c, rounded once where the processor has an instruction for it. Where results must not
/// depend on what the compiler contracts.
TESSERA_FUNCTION inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(TESSERA_DEVICE_CODE) || defined(__ARM_FEATURE_FMA)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// The polynomial with these coefficients, from the highest power down. Without a loop, which would
/// keep compilers from vectorizing the loop around it.
template <class... Coefficients>
TESSERA_FUNCTION inline float horner(float x, float highest, Coefficients... others) {
  float sum = highest;
  ((sum = multiply_add(sum, x, others)), ...);
  return sum;
}
TESSERA_FUNCTION inline float clamp_to(float x, float limit) {
  float const below = x > limit ? limit : x;
  return below < -limit ? -limit : below;
}

/// tanh(x) with a relative error below 5e-7: the minimax rational function of degrees 13 and 6 that
/// Eigen uses, on [-7.9, 7.9]. NaN stays NaN.
TESSERA_FUNCTION inline float fast_tanh(float at) {
  float const x = clamp_to(at, 7.90531110763549805f), square = x * x;
  float const p = horner(square, -2.76076847742355e-16f, 2.00018790482477e-13f,
                         -8.60467152213735e-11f, 5.12229709037114e-08f, 1.48572235717979e-05f,
                         6.37261928875436e-04f, 4.89352455891786e-03f);
  float const q = horner(square, 1.19825839466702e-06f, 1.18534705686654e-04f,
                         2.26843463243900e-03f, 4.89352518554385e-03f);
  return x * p / q;
}

/// erf(x) with an absolute error below 3e-7: as fast_tanh(), degrees 13 and 8 on [-4, 4].
TESSERA_FUNCTION inline float fast_erf(float at) {
  float const x = clamp_to(at, 4.0f), square = x * x;
  float const p = horner(square, -2.72614225801306e-10f, 2.77068142495902e-08f,
                         -2.10102402082508e-06f, -5.69250639462346e-05f, -7.34990630326855e-04f,
                         -2.95459980854025e-03f, -1.60960333262415e-02f);
  float const q = horner(square, -1.45660718464996e-05f, -2.13374055278905e-04f,
                         -1.68282697438203e-03f, -7.37332916720468e-03f, -1.42647390514189e-02f);
  return x * p / q;
}

/// cap * tanh(x / cap), the same bits in every context. Its slope is 1 - (result / cap)^2.
struct SoftCap {
  float cap, inverse;
  explicit SoftCap(float limit) : cap(limit), inverse(limit > 0.0f ? 1.0f / limit : 0.0f) {}
  TESSERA_FUNCTION bool active() const { return cap > 0.0f; }
  TESSERA_FUNCTION float value(float x) const {
    return multiply_add(cap, fast_tanh(x * inverse), 0.0f);
  }
  TESSERA_FUNCTION float slope_at(float result) const {
    float const t = result * inverse;
    return 1.0f - t * t;
  }
};

}  // namespace tessera::kernels::detail
