#pragma once
/// Branch-free single-precision functions that compilers vectorize inside a loop (calls into the C
/// library would not be).

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tessera/core/function.hpp"

namespace tessera::kernels::detail {

/// e^x with a relative error below 1.2e-7. Results below the smallest normal number (x < -87.33)
/// are 0, above the largest (x > 88.72) infinity; NaN stays NaN.
///
/// x = n ln 2 + r with n an integer and |r| <= ln 2 / 2 (ln 2 in two parts, the first exact in
/// products with n); e^r by its minimax polynomial of degree 6 whose first two coefficients are 1;
/// n is added to the exponent bits.
TESSERA_FUNCTION inline float fast_exp(float x) {
  constexpr float to_integer =
      12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the low fraction bits
  float const shifted = x * 1.44269504f + to_integer;
  float const n = shifted - to_integer;
  float const r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.38145394e-3f;
  p = p * r + 8.36874545e-3f;
  p = p * r + 4.16683890e-2f;
  p = p * r + 1.66665211e-1f;
  p = p * r + 4.99999940e-1f;
  float const e_r = 1.0f + (r + (r * r) * p);
  std::uint32_t const exponent = std::bit_cast<std::uint32_t>(shifted)
                                 << 23;  // the bits of to_integer fall off
  float const normal = std::bit_cast<float>(std::bit_cast<std::uint32_t>(e_r) + exponent);
  float const in_range = x < -87.33f ? 0.0f : normal;
  return !(x <= 88.72f) ? x * std::numeric_limits<float>::infinity() : in_range;
}

/// PTX ISA, "ex2.approx.ftz.f32": 2^x with a relative error of 2^-22; results below the smallest
/// normal number are 0. On a host: the exact function with the same flush to zero.
TESSERA_FUNCTION inline float ex2_approx(float x) {
#if defined(__CUDA_ARCH__)
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
#if defined(__CUDA_ARCH__)
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
#if defined(__CUDA_ARCH__)
  return logistic_by_instructions(x);
#else
  return 1.0f / (1.0f + fast_exp(-x));
#endif
}

}  // namespace tessera::kernels::detail
