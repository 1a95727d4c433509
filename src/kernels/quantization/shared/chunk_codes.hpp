#pragma once
/// Values as codes of 8 or 4 bits, for communication: symmetric quantization of chunks.
///
/// A chunk of elements has one scale, its largest magnitude divided by the largest code (127 or 7),
/// rounded up to bf16; a code is an integer of `bits` bits, the element divided by the scale,
/// rounded to nearest, ties to even. A chunk with a value that is not finite has a scale that is
/// not, and decodes to NaN. Codes of 4 bits are in pairs, the first element in the low half.
///
/// A region holds the codes of a run of elements: the scales of its chunks, then its codes. Wang et
/// al., "ZeRO++", ICLR'24, section 3. Chunks are much shorter than those of the paper (about 2048):
/// a row of an embedding or a bias next to a matrix would lose its bits to larger neighbors.

#include <cstdint>

#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::kernels {

using memory::ConstTensorView;
using memory::Queue;
using memory::TensorView;

struct QuantizedFormat {
  int bits = 8;             ///< 8 or 4
  std::int64_t chunk = 64;  ///< elements that share a scale, a multiple of 32
};

/// Bytes of a region of @p numel elements (a multiple of 32), a multiple of 16.
std::int64_t code_bytes(QuantizedFormat const& format, std::int64_t numel);

/// Regions of equal size, one after the other.
struct QuantizedRegions {
  QuantizedFormat format;
  std::int64_t numel = 0;  ///< elements of a region
  std::int64_t count = 1;
  std::int64_t bytes() const { return code_bytes(format, numel) * count; }
};

/// Region r of the input becomes region place(r) of the codes: (r mod inner) * (count / inner) +
/// r / inner. With inner 1 the order stays.
/// @param out uint8 [regions.bytes()]  @param in [count * numel] of fp32, bf16 or fp16
/// @param error null, or [count * numel] of the dtype of @p in: is added to the values first, and
/// becomes keep * error + (1 - keep) * (values - decoded codes)
struct Encoding {
  std::int64_t inner = 1;
  void* error = nullptr;
  double keep = 0.0;
};
void encode_chunks(Queue& q, TensorView out, ConstTensorView in, QuantizedRegions const& regions,
                   Encoding const& encoding = {});
/// The values of @p in, region by region. @param out [count * numel] of fp32, bf16 or fp16
void decode_chunks(Queue& q, TensorView out, ConstTensorView in, QuantizedRegions const& regions);
/// out [numel] (+)= sum of the regions in their order, in fp32. @param in @p parts times
/// @p regions.count regions: region r of the sum is that of regions r, r + count, ...
/// @param out [count * numel]
void sum_chunks(Queue& q, TensorView out, ConstTensorView in, QuantizedRegions const& regions,
                std::int64_t parts, memory::WriteMode mode);

}  // namespace tessera::kernels
