#pragma once
/// Conversions of elements to fp32 and back, inside vectorized loops.

#include <bit>
#include <cstdint>

#include "launch/device_code.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::kernels::detail {

/// PTX ISA, "cvt.f32.f16": subnormal numbers are kept. @p magnitude has no sign bit. On a host:
/// what the instruction computes.
TESSERA_FUNCTION inline float cvt_f32_f16(std::uint16_t magnitude) {
#if defined(TESSERA_PTX)
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(magnitude));
  return out;
#else
  float16 half;
  half.bits = magnitude;
  return half;
#endif
}
/// PTX ISA, "cvt.rn.f16.f32": to nearest even; every NaN becomes 0x7FFF. On a host: what the
/// instruction computes.
TESSERA_FUNCTION inline std::uint16_t cvt_rn_f16_f32(float value) {
#if defined(TESSERA_PTX)
  std::uint16_t out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(value));
  return out;
#else
  return value != value ? std::uint16_t{0x7FFF} : float16::round(value);
#endif
}

/// The device's conversions. The instructions drop the sign of a NaN, so it is put back: the bits
/// are those of float16's own conversions. Hosts compile both forms;
/// tests/kernels/launch/convert.test.cpp compares them.
TESSERA_FUNCTION inline float load_by_instruction(float16 value) {
  float const magnitude = cvt_f32_f16(static_cast<std::uint16_t>(value.bits & 0x7FFFu));
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | (value.bits & 0x8000u)
                                                                            << 16);
}
TESSERA_FUNCTION inline void store_by_instruction(float16& out, float value) {
  std::uint16_t const rounded = cvt_rn_f16_f32(value);
  std::uint32_t const sign = std::bit_cast<std::uint32_t>(value) >> 16 & 0x8000u;
  out.bits = value != value ? static_cast<std::uint16_t>(sign | 0x7E00u) : rounded;
}

TESSERA_FUNCTION inline float load(float value) { return value; }
TESSERA_FUNCTION inline float load(float16 value) {
#if defined(TESSERA_PTX)
  return load_by_instruction(value);
#else
  return value;
#endif
}
TESSERA_FUNCTION inline float load(bfloat16 value) { return value; }

/// Writes the bits, not an object: copies of class objects keep compilers from vectorizing the
/// loop around them.
TESSERA_FUNCTION inline void store(float& out, float value) { out = value; }
TESSERA_FUNCTION inline void store(float16& out, float value) {
#if defined(TESSERA_PTX)
  store_by_instruction(out, value);
#else
  out.bits = float16::round(value);
#endif
}
TESSERA_FUNCTION inline void store(bfloat16& out, float value) {
  out.bits = bfloat16::round(value);
}

}  // namespace tessera::kernels::detail
