#pragma once
/// A complete chunk of 8-bit codes on the host. Processors with AVX-512 keep the map in registers:
/// gathers from tables take several times as long. With AVX-512 VBMI, which is looked for when the
/// program runs, 64 codes at a time are looked up.

#include <bit>
#include <cstdint>

#include "tessera/core/rounding.hpp"
#include "tessera/kernels/optimizer/quantized_values.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::kernels::detail {

/// How codes become numbers. The numbers are the same.
enum class CodeLookup { fastest, without_vbmi };

/// The numbers of quantization_chunk codes times @p absmax.
void decode_chunk(DynamicMap map, std::uint8_t const* codes, float absmax, float* out,
                  CodeLookup lookup = CodeLookup::fastest);
/// The nearest codes of quantization_chunk values divided by @p divisor, as
/// QuantizationTable::code(). Quotients are in [-1, 1]; none is NaN unless the divisor is.
void encode_chunk(DynamicMap map, float const* values, float divisor, std::uint8_t* codes);

/// A map in the form that kernels read, and the way from a number to its nearest code: the upper 16
/// bits of the magnitude choose a bucket, in which at most one border between two codes lies.
struct QuantizationTable {
  static constexpr std::uint32_t first_key = 0x3380, last_key = 0x3F80;  ///< keys of 2^-24 and of 1
  static constexpr std::uint32_t buckets = last_key - first_key + 1, no_border = 0x10000;
  static constexpr int zero_of_signed = 127;  ///< code of 0

  float number[256];
  std::int32_t bucket[buckets];  ///< rank of its first magnitude, and from bit 8 on the lower 16
                                 ///< bits of the border, where the rank is one higher

  /// Returns the code of @p value / @p divisor, which is in [-1, 1].
  template <DynamicMap map>
  TESSERA_FUNCTION static int code(std::int32_t const* bucket, float value, float divisor) {
    int const bits = std::bit_cast<int>(value / divisor);
    constexpr int first = first_key << 16, last = last_key << 16;
    int magnitude = bits & 0x7FFFFFFF;  // signed: what gathers take
    magnitude = magnitude < last ? magnitude : last;
    magnitude = magnitude > first ? magnitude : first;
    int const found = bucket[(magnitude >> 16) - static_cast<int>(first_key)];
    int const rank = (found & 0xFF) + ((magnitude & 0xFFFF) >= found >> 8 ? 1 : 0);
    if constexpr (map == DynamicMap::unsigned_values) return rank;
    int const sign = bits >> 31;  // 0 or -1; without branches, or loops do not vectorize
    int const limit = zero_of_signed + 1 + sign;
    int const near = rank < limit ? rank : limit;
    return zero_of_signed + ((near ^ sign) - sign);
  }
};

QuantizationTable const& host_table(DynamicMap map);
/// Returns the table in memory of the queue's space. The first call for a device waits until its
/// copy is complete.
QuantizationTable const* table_for(memory::Queue& q, DynamicMap map);

/// Zeros have no largest magnitude to divide by.
TESSERA_FUNCTION inline float divisor_of(float absmax) { return absmax != 0.0f ? absmax : 1.0f; }

}  // namespace tessera::kernels::detail
