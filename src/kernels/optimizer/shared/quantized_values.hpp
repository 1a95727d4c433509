#pragma once
/// States of optimizers in 8 bits, as bitsandbytes keeps them: dynamic quantization of chunks of
/// 256 elements. A chunk has one fp32 number, its largest magnitude (absmax), and one code of 8
/// bits per element. A code is an index into a map of 256 numbers from -0.993 or 0 to 1; the
/// element is map[code] * absmax. Dettmers et al., "8-bit Optimizers via Block-wise Quantization",
/// ICLR 2022.

#include <cstdint>
#include <span>

namespace tessera::kernels {

/// Elements that share an absmax. A chunk does not reach over the end of a parameter.
inline constexpr std::int64_t quantization_chunk = 256;

/// bitsandbytes' create_dynamic_map(signed). The signed map has no -1.
enum class DynamicMap { signed_values, unsigned_values };

/// The numbers of the map, ascending, bit by bit those of bitsandbytes.
std::span<float const, 256> numbers_of(DynamicMap map);

/// Codes of one state with an absmax for each chunk of them.
struct QuantizedValues {
  std::uint8_t* codes = nullptr;
  float* absmax = nullptr;
};

/// On the host, with memory of the host.
void dequantize(QuantizedValues from, DynamicMap map, std::span<float> out);
/// The nearest codes for the absmax that @p out has; of dequantized numbers those that they came
/// from, or others with the same values.
void quantize(std::span<float const> values, DynamicMap map, QuantizedValues out);

}  // namespace tessera::kernels
