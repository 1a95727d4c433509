#include "tessera/core/float8.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tessera/core/config_tree.hpp"

namespace tessera {
namespace {

float from_bits(ConfigTree const& bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits.as_int()));
}

/// Against torch's casts (tests/oracles/float8.py): every code, every tie and its neighbors,
/// subnormal numbers, saturation, random numbers of 50 binades.
template <class F8>
void expect_as_torch(char const* format) {
  auto const stored =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/float8.json").at(format);
  auto const& values = stored.at("values").as_array();
  ASSERT_EQ(values.size(), 256u);
  for (std::size_t code = 0; code < values.size(); ++code) {
    F8 number;
    number.bits = static_cast<std::uint8_t>(code);
    float const want = from_bits(values[code]), got = number;
    if (std::isnan(want))
      EXPECT_TRUE(std::isnan(got)) << code;
    else
      EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want)) << code;
  }
  auto const &inputs = stored.at("inputs").as_array(), &codes = stored.at("codes").as_array();
  ASSERT_GT(inputs.size(), 3000u);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    EXPECT_EQ(F8::round(from_bits(inputs[i])), codes[i].as_int()) << from_bits(inputs[i]);
  EXPECT_EQ(F8::round(std::nanf("")), 0x7F);
  EXPECT_EQ(F8::round(-std::nanf("")), 0x7F);
}

TEST(Float8, E4m3IsThatOfTorch) { expect_as_torch<float8_e4m3>("e4m3"); }
TEST(Float8, E5m2IsThatOfTorch) { expect_as_torch<float8_e5m2>("e5m2"); }

TEST(Float8, LargestNumbers) {
  EXPECT_EQ(std::bit_cast<float>(float8_e4m3::largest_bits), 448.0f);
  EXPECT_EQ(std::bit_cast<float>(float8_e5m2::largest_bits), 57344.0f);
}

}  // namespace
}  // namespace tessera
