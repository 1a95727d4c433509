#pragma once
/// A complete chunk of 8-bit codes on the host. Processors with AVX-512 keep the map in registers:
/// gathers from tables take several times as long.

#include <cstdint>

#include "tessera/kernels/quantized_update.hpp"

namespace tessera::kernels::detail {

/// The numbers of quantization_chunk codes times @p absmax.
void decode_chunk(DynamicMap map, std::uint8_t const* codes, float absmax, float* out);
/// The nearest codes of quantization_chunk values divided by @p divisor, as
/// QuantizationTable::code().
void encode_chunk(DynamicMap map, float const* values, float divisor, std::uint8_t* codes);

}  // namespace tessera::kernels::detail
