#pragma once
/// Two neighboring bf16 elements in a word, on a little-endian host. Loops over words need no
/// shuffles of vectors, which loops over 16-bit elements do before and after each operation.

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tessera/core/dtype.hpp"

namespace tessera::kernels::detail {

inline constexpr bool has_bf16_pairs = std::endian::native == std::endian::little;

/// Whether all of the types are bf16, apart from void.
template <class... T>
inline constexpr bool only_bf16 = ((std::is_same_v<T, bfloat16> || std::is_void_v<T>)&&...);

TESSERA_FUNCTION inline std::uint32_t read_pair(bfloat16 const* from) {
  std::uint32_t pair;
  std::memcpy(&pair, from, sizeof pair);
  return pair;
}
TESSERA_FUNCTION inline void write_pair(bfloat16* to, std::uint32_t pair) {
  std::memcpy(static_cast<void*>(to), &pair, sizeof pair);
}

TESSERA_FUNCTION inline float first_of_pair(std::uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
TESSERA_FUNCTION inline float second_of_pair(std::uint32_t pair) {
  return std::bit_cast<float>(pair & 0xFFFF0000u);
}

/// bfloat16::round() in the upper half; the lower half means nothing.
TESSERA_FUNCTION inline std::uint32_t rounded_in_upper_half(float value) {
  std::uint32_t const u = std::bit_cast<std::uint32_t>(value);
  return value != value ? u | 0x400000u : u + 0x7FFFu + ((u >> 16) & 1u);
}
TESSERA_FUNCTION inline std::uint32_t pair_of(float first, float second) {
  return (rounded_in_upper_half(second) & 0xFFFF0000u) | (rounded_in_upper_half(first) >> 16);
}

}  // namespace tessera::kernels::detail
