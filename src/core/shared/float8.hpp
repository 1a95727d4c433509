#pragma once
/// The two 8-bit floating-point formats of Micikevicius et al., "FP8 formats for deep learning",
/// arXiv 2209.05433, section 3 (the same as OFP8 of the Open Compute Project).

#include <bit>
#include <cstdint>

#include "tessera/core/rounding.hpp"

namespace tessera {

/// Fraction bits, exponent bias, and the code of the largest finite number. The code after it is
/// infinity where the format has one; all later ones are NaN. The conversions are branch-free so
/// that loops over them vectorize.
template <int Fraction, int Bias, std::uint8_t Largest, bool HasInfinity>
struct float8 {
  std::uint8_t bits = 0;

  float8() = default;
  TESSERA_FUNCTION explicit float8(float value) : bits(round(value)) {}
  TESSERA_FUNCTION operator float() const {
    std::uint32_t const magnitude = bits & 0x7Fu;
    std::uint32_t const normal = (magnitude << shift) + rebias;
    // a subnormal number counts units of the last place
    std::uint32_t const subnormal =
        std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(magnitude)) * unit);
    std::uint32_t const special =
        HasInfinity && magnitude == Largest + 1u ? 0x7F800000u : 0x7FC00000u;
    std::uint32_t const value = magnitude > Largest            ? special
                                : magnitude < (1u << Fraction) ? subnormal
                                                               : normal;
    return std::bit_cast<float>(value | (bits & 0x80u) << 24);
  }

  /// Round to nearest, ties to even; saturating: beyond the largest finite number, infinity
  /// included, that number. Every NaN becomes 0x7F, as by the cvt instructions of PTX.
  TESSERA_FUNCTION static std::uint8_t round(float value) {
    std::uint32_t const u = std::bit_cast<std::uint32_t>(value), magnitude = u & 0x7FFFFFFFu;
    std::uint32_t const m = magnitude < largest_bits ? magnitude : largest_bits;
    std::uint32_t const normal =
        (m + ((1u << (shift - 1)) - 1u) + (m >> shift & 1u) - rebias) >> shift;
    // the sum's last place is the format's: the addition rounds
    std::uint32_t const subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(m) + anchor) -
                                    std::bit_cast<std::uint32_t>(anchor);
    std::uint32_t const code = (u >> 24 & 0x80u) | (m < smallest_normal ? subnormal : normal);
    return static_cast<std::uint8_t>(magnitude > 0x7F800000u ? 0x7Fu : code);
  }

  /// The largest finite number, as fp32's bits: 448 or 57344.
  static constexpr std::uint32_t largest_bits =
      (static_cast<std::uint32_t>(Largest) << (23 - Fraction)) +
      (static_cast<std::uint32_t>(127 - Bias) << 23);

 private:
  static constexpr int shift = 23 - Fraction;
  static constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - Bias) << 23,
                                 smallest_normal = static_cast<std::uint32_t>(128 - Bias) << 23;
  /// The smallest subnormal number, and 2^23 of it.
  static constexpr float unit = std::bit_cast<float>(
                             static_cast<std::uint32_t>(128 - Bias - Fraction) << 23),
                         anchor = std::bit_cast<float>(
                             static_cast<std::uint32_t>(151 - Bias - Fraction) << 23);
};

/// 4 exponent and 3 fraction bits, up to 448, no infinity: weights and activations.
using float8_e4m3 = float8<3, 7, 0x7E, false>;
/// 5 exponent and 2 fraction bits, up to 57344: gradients.
using float8_e5m2 = float8<2, 15, 0x7B, true>;

/// No Dtype: fp8 numbers are operands of matrix products only, and views of them are of uint8.
enum class Float8 : std::uint8_t { e4m3, e5m2 };
constexpr char const* name_of(Float8 format) {
  return format == Float8::e4m3 ? "fp8 e4m3" : "fp8 e5m2";
}

}  // namespace tessera
