/// Chunks in registers against single values through the table.
#include "optimizer/quantized_chunk.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace tessera::kernels::test {
namespace {

using Chunk = std::array<float, quantization_chunk>;
using Codes = std::array<std::uint8_t, quantization_chunk>;

constexpr DynamicMap maps[] = {DynamicMap::signed_values, DynamicMap::unsigned_values};

void expect_codes(DynamicMap map, Chunk const& values, float divisor) {
  Codes got, want;
  detail::encode_chunk(map, values.data(), divisor, got.data());
  quantize(values, map, {want.data(), &divisor});
  if (got == want) return;
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(int{got[i]}, int{want[i]}) << values[i] << " / " << divisor;
}

/// Every magnitude from 2^-26 to 1, and some below.
TEST(QuantizedChunk, HasTheCodesOfSingleValues) {
  for (auto const map : maps) {
    float const sign = map == DynamicMap::signed_values ? -1.0f : 1.0f;
    Chunk values{0.0f, -0.0f, 1.0f, sign, 1e-45f, sign * 1e-38f};
    expect_codes(map, values, 1.0f);
    int const end = std::bit_cast<int>(1.0f);
    for (int bits = std::bit_cast<int>(0x1p-26f); bits <= end;) {
      for (std::size_t i = 0; i < values.size(); ++i, ++bits)
        values[i] = (i % 2 ? sign : 1.0f) * std::bit_cast<float>(std::min(bits, end));
      expect_codes(map, values, 1.0f);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(QuantizedChunk, HasTheCodesOfSingleValuesThatAreNotFinite) {
  float const nan = std::numeric_limits<float>::quiet_NaN();
  for (auto const map : maps)
    for (float const divisor : {nan, std::numeric_limits<float>::infinity()}) {
      Chunk values{1.0f, -1.0f, 0.0f, divisor, -divisor, 1e30f};
      expect_codes(map, values, divisor);
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
      dequantize({codes.data(), &absmax}, map, want);
      for (auto const lookup : {detail::CodeLookup::fastest, detail::CodeLookup::without_vbmi}) {
        detail::decode_chunk(map, codes.data(), absmax, got.data(), lookup);
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_EQ(std::bit_cast<int>(got[i]), std::bit_cast<int>(want[i])) << i;
      }
    }
}

}  // namespace
}  // namespace tessera::kernels::test
