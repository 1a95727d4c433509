/// Chunks in registers against single values through the table.
#include "detail/quantized_chunk.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace tessera::kernels::test {
namespace {

using Chunk = std::array<float, quantization_chunk>;
using Codes = std::array<std::uint8_t, quantization_chunk>;

constexpr DynamicMap maps[] = {DynamicMap::signed_values, DynamicMap::unsigned_values};

void expect_codes(DynamicMap map, Chunk const& values, float divisor) {
  Codes got, want;
  detail::encode_chunk(map, values.data(), divisor, got.data());
  quantize(values, map, {want.data(), &divisor});
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(int{got[i]}, int{want[i]}) << values[i] << " / " << divisor;
}

/// Every 31st number of the range, and those around every border.
TEST(QuantizedChunk, HasTheCodesOfSingleValues) {
  for (auto const map : maps) {
    float const sign = map == DynamicMap::signed_values ? -1.0f : 1.0f;
    std::vector<float> all;
    for (float x = 0x1p-26f; x <= 1.0f; x = std::bit_cast<float>(std::bit_cast<int>(x) + 31))
      all.push_back(all.size() % 2 ? x : sign * x);
    auto const numbers = numbers_of(map);
    for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
      float x = (numbers[i] + numbers[i + 1]) / 2.0f;
      for (int k = 0; k < 3; ++k) x = std::nextafter(x, -2.0f);
      for (int k = 0; k < 6; ++k) all.push_back(x), x = std::nextafter(x, 2.0f);
      all.push_back(numbers[i]);
    }
    for (float const x : {0.0f, -0.0f, 1.0f, 1e-45f, std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::quiet_NaN()})
      all.push_back(x);
    Chunk values{};
    for (std::size_t i = 0; i < all.size(); i += values.size()) {
      for (std::size_t k = 0; k < values.size(); ++k) values[k] = all[(i + k) % all.size()];
      expect_codes(map, values, 1.0f);
    }
  }
}

TEST(QuantizedChunk, DividesAsSingleValuesDo) {
  for (auto const map : maps)
    for (float const divisor : {3.7e-5f, 2.9e20f, 1.3e-38f, 7e-45f, 0.99999994f, 0.7f, 1.9e38f}) {
      Chunk values;
      for (int scale = 0; scale < 200; ++scale) {
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = divisor * std::exp(-0.1f * static_cast<float>(scale)) *
                      (0.5f + 0.5f * std::sin(static_cast<float>(i * i + 1)));
        expect_codes(map, values, divisor);
      }
    }
}

/// Quotients on both sides of every border, for divisors without an exact inverse.
TEST(QuantizedChunk, DividesExactlyAtBorders) {
  for (auto const map : maps) {
    auto const numbers = numbers_of(map);
    for (float const divisor : {3.0f, 0.7f, 1.9999999f, 1.0f / 3.0f}) {
      Chunk values{};
      for (int shift = -4; shift <= 4; ++shift) {
        for (std::size_t i = 0; i + 1 < values.size(); ++i) {
          values[i] = divisor * ((numbers[i] + numbers[i + 1]) / 2.0f);
          for (int k = 0; k < std::abs(shift); ++k)
            values[i] = std::nextafter(values[i], shift < 0 ? -9.0f : 9.0f);
        }
        expect_codes(map, values, divisor);
      }
    }
  }
}

TEST(QuantizedChunk, HasTheNumbersOfSingleCodes) {
  for (auto const map : maps)
    for (float absmax : {1.0f, 0.3f, 2.9e20f, 0.0f, 7e-45f}) {
      Codes codes;
      for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
      Chunk got, want;
      detail::decode_chunk(map, codes.data(), absmax, got.data());
      dequantize({codes.data(), &absmax}, map, want);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(std::bit_cast<int>(got[i]), std::bit_cast<int>(want[i])) << i;
    }
}

}  // namespace
}  // namespace tessera::kernels::test
