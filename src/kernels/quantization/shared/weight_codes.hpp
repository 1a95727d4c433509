#pragma once
/// Weights that do not train as codes, in the formats of bitsandbytes: NF4 in blocks of 64 elements
/// or int8 with a scale per row. Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs",
/// NeurIPS'23, and "LLM.int8()", NeurIPS'22.
///
/// nf4: an element is number[code] * absmax of its block; an absmax is fp32. Double quantization
/// keeps an absmax as map[code] * scale + offset: 8-bit codes of the signed dynamic map, one scale
/// for 256 of them, and the mean of all as offset.
/// int8: an element is code * (absmax of its row / 127), of weights that are rounded to fp16 first.
///
/// The codes of a matrix are one array of bytes: fp32 numbers (offset, scales), codes of the
/// scales, codes of the elements. Codes of 4 bits are in pairs, the first element in the high half.

#include <cstdint>

#include "tessera/core/rounding.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::kernels {

enum class WeightFormat { nf4, nf4_double, int8 };

/// The matrix of a linear layer with @p rows outputs and @p columns inputs, and its codes.
struct WeightCodes {
  static constexpr std::int64_t block = 64;         ///< elements with one absmax
  static constexpr std::int64_t scale_block = 256;  ///< blocks whose absmax share a scale
  WeightFormat format = WeightFormat::nf4;
  std::int64_t rows = 0, columns = 0;
  /// Whether values are [columns, rows] in memory, as GPT-2's Conv1D has them. The codes are in the
  /// order of [rows, columns], in which bitsandbytes gets them.
  bool transposed = false;

  std::int64_t numel() const { return rows * columns; }
  std::int64_t blocks() const { return ceil_divide(numel(), block); }
  /// Numbers in fp32 at the begin of the codes.
  std::int64_t numbers() const;
  /// Bytes before the codes of the elements.
  std::int64_t header_bytes() const;
  std::int64_t bytes() const;
};

/// Encodes fp32 @p values, on the host. @param out [codes.bytes()]
void encode_weights(WeightCodes const& codes, float const* values, std::uint8_t* out);

/// @param out [codes.numel()] of fp32, bf16 or fp16, in the order of the values
/// @param in uint8 [codes.bytes()]
void decode_weights(memory::Queue& q, memory::TensorView out, memory::ConstTensorView in,
                    WeightCodes const& codes);

}  // namespace tessera::kernels
