#pragma once
/// The additive mask by which cuDNN's attention keeps the documents of packed rows apart.

#include <bit>
#include <cstdint>

#include "launch/convert.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/kernels/attention/attention.hpp"

namespace tessera::kernels::detail {

/// Elements of a row of the mask, which begins at a multiple of 16 bytes.
inline std::int64_t document_mask_row(std::int64_t sequence) { return round_up(sequence, 8); }
inline std::int64_t document_mask_bytes(AttentionShape const& shape) {
  return 2 * shape.batch * shape.sequence * document_mask_row(shape.sequence);
}

/// Sets the mask [B, T, document_mask_row(T)] of a call in fp16 or bf16: 0, or -32768 for keys
/// before the query's document. exp(score - 32768) is 0 in fp32 as long as the scores of a row
/// differ by less than 32600. A larger number would not do: where a tile has only such keys, the
/// rounding of score * log2(e) must be small for its online softmax. One index per 8 elements.
struct SetDocumentMask {
  std::int32_t const* documents;  ///< see AttentionInput
  void* mask;
  std::int64_t packs;  ///< per row
  std::uint16_t hidden;

  SetDocumentMask(AttentionConfig const& config, ConstTensorView of, void* to)
      : documents(of.as<std::int32_t>()),
        mask(to),
        packs(document_mask_row(config.shape.sequence) / 8),
        hidden(config.dtype == Dtype::bf16 ? std::bit_cast<std::uint16_t>(bfloat16(-32768.0f))
                                           : std::bit_cast<std::uint16_t>(float16(-32768.0f))) {}
  static std::int64_t indices(AttentionShape const& shape) {
    return document_mask_bytes(shape) / 16;
  }
  TESSERA_FUNCTION void operator()(std::int64_t i) const {
    struct alignas(16) Pack {
      std::uint16_t v[8];
    };
    std::int64_t const query = i / packs, key = i % packs * 8, first = documents[query];
    Pack pack;
    for (int j = 0; j < 8; ++j) pack.v[j] = key + j < first ? hidden : std::uint16_t{0};
    static_cast<Pack*>(mask)[i] = pack;
  }
};

}  // namespace tessera::kernels::detail
