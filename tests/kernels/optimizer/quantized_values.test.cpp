/// Maps and codes against bitsandbytes and exhaustive search.
#include "tessera/kernels/optimizer/quantized_values.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::kernels::test {
namespace {

using Floats = std::vector<float>;

constexpr DynamicMap maps[] = {DynamicMap::signed_values, DynamicMap::unsigned_values};

TEST(QuantizedValues, MapsAreThoseOfBitsandbytes) {
  auto const oracle =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/optimizers_8bit.json");
  for (auto const map : maps) {
    auto const& stored =
        oracle.at("maps").at(map == DynamicMap::signed_values ? "signed" : "unsigned").as_array();
    for (std::size_t i = 0; i < 256; ++i)
      EXPECT_EQ(numbers_of(map)[i], static_cast<float>(stored[i].as_double())) << i;
  }
}

/// Numbers of all magnitudes, and those around every border between two codes, get the nearest
/// code.
TEST(QuantizedValues, CodesAreTheNearest) {
  for (auto const map : maps) {
    auto const numbers = numbers_of(map);
    Floats values;
    for (std::size_t i = 0; i + 1 < 256; ++i) {
      float const middle = (numbers[i] + numbers[i + 1]) / 2.0f;
      values.insert(values.end(), {numbers[i], std::nextafter(middle, -2.0f), middle,
                                   std::nextafter(middle, 2.0f)});
    }
    for (int i = 0; i < 4096; ++i)
      values.push_back(std::ldexp(1.0f + static_cast<float>(i) / 4096.0f, -1 - i % 40));
    values.insert(values.end(), {1.0f, 0.0f, 1e-45f});
    if (map == DynamicMap::signed_values) values.push_back(-1.0f);
    for (float const value : values) {
      float absmax = 1.0f;
      std::uint8_t code = 0;
      quantize({&value, 1}, map, {&code, &absmax});
      double best = 2.0;
      for (float const number : numbers)
        best = std::min(best, std::abs(static_cast<double>(number) - value));
      EXPECT_EQ(std::abs(static_cast<double>(numbers[code]) - value), best) << value;
    }
  }
}

/// What a checkpoint has of codes gives the same values again, for any absmax.
TEST(QuantizedValues, ValuesOfCodesKeepTheirValues) {
  for (auto const map : maps)
    for (float const largest : {1.0f, 3.7e-5f, 2.9e20f, 1.3e-38f, 7e-45f, 0.0f}) {
      std::vector<std::uint8_t> codes(256), again(256);
      for (std::size_t i = 0; i < 256; ++i) codes[i] = static_cast<std::uint8_t>(i);
      float absmax = largest;
      Floats values(256), later(256);
      dequantize({codes.data(), &absmax}, map, values);
      quantize(values, map, {again.data(), &absmax});
      dequantize({again.data(), &absmax}, map, later);
      EXPECT_EQ(values, later) << largest;
      if (largest > 1e-30f) {
        EXPECT_EQ(codes, again);
      }
    }
}

}  // namespace
}  // namespace tessera::kernels::test
