#pragma once
/// A complete chunk of 8-bit codes on the host. Processors with AVX-512 keep the map in registers:
/// gathers from tables take several times as long. With AVX-512 VBMI, which is looked for when the
/// program runs, 64 codes at a time are looked up.

#include <cstdint>

#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::kernels::detail {

/// How codes become numbers. The numbers are the same.
enum class CodeLookup { fastest, without_vbmi };

/// The numbers of quantization_chunk codes times @p absmax.
void decode_chunk(DynamicMap map, std::uint8_t const* codes, float absmax, float* out,
                  CodeLookup lookup = CodeLookup::fastest);
/// The nearest codes of quantization_chunk values divided by @p divisor, as
/// QuantizationTable::code(). Quotients are in [-1, 1]; none is NaN unless the divisor is.
void encode_chunk(DynamicMap map, float const* values, float divisor, std::uint8_t* codes);

}  // namespace tessera::kernels::detail
