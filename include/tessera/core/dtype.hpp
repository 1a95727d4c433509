#pragma once
/// Element types: their names, sizes, and the two 16-bit floating-point formats with
/// round-to-nearest-even conversion.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tessera/core/rounding.hpp"

namespace tessera {

/// Type of the elements of a tensor.
enum class Dtype : std::uint8_t { fp32, fp16, bf16, fp64, int32, int64, uint8 };

/// Bytes of one element.
constexpr std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp16:
    case Dtype::bf16:
      return 2;
    case Dtype::fp32:
    case Dtype::int32:
      return 4;
    case Dtype::fp64:
    case Dtype::int64:
      return 8;
    case Dtype::uint8:
      return 1;
  }
  return 0;
}

/// "fp32", "bf16", ... as written in DeepSpeed configurations and manifests.
std::string_view name_of(Dtype dtype);

/// The dtype with this name; also accepts float32/float/half/bfloat16 and torch.* spellings.
/// @throws ConfigError for any other name.
Dtype dtype_from_name(std::string_view name);

/// bfloat16: 1 sign, 8 exponent, 7 fraction bits.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  TESSERA_FUNCTION explicit bfloat16(float value) : bits(round(value)) {}
  TESSERA_FUNCTION operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  /// Round to nearest, ties to even; NaN stays a (quiet) NaN.
  TESSERA_FUNCTION static std::uint16_t round(float value) {
    std::uint32_t const u = std::bit_cast<std::uint32_t>(value);
    std::uint32_t const rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    bool const is_nan = (u & 0x7FFFFFFFu) > 0x7F800000u;
    return static_cast<std::uint16_t>(is_nan ? ((u >> 16) | 0x40u) : rounded);
  }
};

/// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits. The conversions are branch-free so that
/// loops over them vectorize.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  TESSERA_FUNCTION explicit float16(float value) : bits(round(value)) {}
  TESSERA_FUNCTION operator float() const {
    std::uint32_t const w = static_cast<std::uint32_t>(bits) << 16;
    std::uint32_t const sign = w & 0x80000000u;
    std::uint32_t const two_w = w + w;
    // normal: rebias the exponent by a multiplication; subnormal: read the fraction as an integer
    // offset from 0.5
    float const normal = std::bit_cast<float>((two_w >> 4) + (0xE0u << 23)) * 0x1.0p-112f;
    float const subnormal = std::bit_cast<float>((two_w >> 17) | (126u << 23)) - 0.5f;
    std::uint32_t const magnitude = two_w < (1u << 27) ? std::bit_cast<std::uint32_t>(subnormal)
                                                       : std::bit_cast<std::uint32_t>(normal);
    return std::bit_cast<float>(sign | magnitude);
  }

  TESSERA_FUNCTION static std::uint16_t round(float value) {
    std::uint32_t const w = std::bit_cast<std::uint32_t>(value);
    std::uint32_t const two_w = w + w;
    float const magnitude = std::bit_cast<float>(w & 0x7FFFFFFFu);
    std::uint32_t bias = two_w & 0xFF000000u;
    bias = bias < 0x71000000u ? 0x71000000u : bias;
    // scaling to infinity and back makes the addition below round at bit 10 of the half's fraction
    float const base =
        std::bit_cast<float>((bias >> 1) + 0x07800000u) + (magnitude * 0x1.0p+112f) * 0x1.0p-110f;
    std::uint32_t const b = std::bit_cast<std::uint32_t>(base);
    std::uint32_t const nonsign = ((b >> 13) & 0x7C00u) + (b & 0x0FFFu);
    return static_cast<std::uint16_t>(((w & 0x80000000u) >> 16) |
                                      (two_w > 0xFF000000u ? 0x7E00u : nonsign));
  }
};

template <class T>
constexpr Dtype dtype_of();
template <>
constexpr Dtype dtype_of<float>() {
  return Dtype::fp32;
}
template <>
constexpr Dtype dtype_of<float16>() {
  return Dtype::fp16;
}
template <>
constexpr Dtype dtype_of<bfloat16>() {
  return Dtype::bf16;
}
template <>
constexpr Dtype dtype_of<double>() {
  return Dtype::fp64;
}
template <>
constexpr Dtype dtype_of<std::int32_t>() {
  return Dtype::int32;
}
template <>
constexpr Dtype dtype_of<std::int64_t>() {
  return Dtype::int64;
}
template <>
constexpr Dtype dtype_of<std::uint8_t>() {
  return Dtype::uint8;
}

}  // namespace tessera
