#pragma once
/// Elements to fp32 and back inside vectorized loops. A device has instructions for fp16 (PTX ISA,
/// "cvt": subnormal numbers are kept, .rn is to nearest even); as they drop the sign of a NaN, it
/// is put back: the bits are those of float16's own conversions.

#include <bit>
#include <cstdint>

#include "tessera/core/dtype.hpp"

namespace tessera::kernels::detail {

TESSERA_FUNCTION inline float load(float value) { return value; }
TESSERA_FUNCTION inline float load(float16 value) {
#if defined(__CUDA_ARCH__)
  float magnitude;
  asm("cvt.f32.f16 %0, %1;"
      : "=f"(magnitude)
      : "h"(static_cast<std::uint16_t>(value.bits & 0x7FFFu)));
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | (value.bits & 0x8000u)
                                                                            << 16);
#else
  return value;
#endif
}
TESSERA_FUNCTION inline float load(bfloat16 value) { return value; }

/// The bits are written, not an object: copies of class objects keep compilers from vectorizing the
/// loop around them.
TESSERA_FUNCTION inline void store(float& out, float value) { out = value; }
TESSERA_FUNCTION inline void store(float16& out, float value) {
#if defined(__CUDA_ARCH__)
  std::uint16_t rounded;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  std::uint32_t const sign = std::bit_cast<std::uint32_t>(value) >> 16 & 0x8000u;
  out.bits = value != value ? static_cast<std::uint16_t>(sign | 0x7E00u) : rounded;
#else
  out.bits = float16::round(value);
#endif
}
TESSERA_FUNCTION inline void store(bfloat16& out, float value) {
  out.bits = bfloat16::round(value);
}

}  // namespace tessera::kernels::detail
