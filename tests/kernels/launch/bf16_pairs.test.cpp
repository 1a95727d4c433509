/// Pairs of bf16 elements have the bits of bfloat16's own conversions.
#include "launch/bf16_pairs.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tessera::kernels::detail {
namespace {

TEST(Bf16Pairs, WidenEveryElementInBothPlaces) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    std::array<bfloat16, 2> elements;
    elements[0].bits = static_cast<std::uint16_t>(bits);
    elements[1].bits = static_cast<std::uint16_t>(bits ^ 0x5A5A);
    std::uint32_t const pair = read_pair(elements.data());
    ASSERT_EQ(std::bit_cast<std::uint32_t>(first_of_pair(pair)), bits << 16);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(second_of_pair(pair)), (bits ^ 0x5A5A) << 16);
  }
}

/// Ties, neighbors of ties, infinities and NaN of every upper half.
TEST(Bf16Pairs, RoundInBothPlaces) {
  constexpr std::uint32_t lower[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
  for (std::uint32_t upper = 0; upper <= 0xFFFF; ++upper)
    for (std::uint32_t const low : lower) {
      float const value = std::bit_cast<float>(upper << 16 | low),
                  other = std::bit_cast<float>((upper ^ 0x1234) << 16 | low);
      std::array<bfloat16, 2> elements;
      write_pair(elements.data(), pair_of(value, other));
      ASSERT_EQ(elements[0].bits, bfloat16::round(value)) << upper << ' ' << low;
      ASSERT_EQ(elements[1].bits, bfloat16::round(other)) << upper << ' ' << low;
    }
}

}  // namespace
}  // namespace tessera::kernels::detail
