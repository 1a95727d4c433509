#pragma once
/// Writes new keys and values into the cache that attention_decode() reads.

#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/kernels/launch/heads.hpp"

namespace tessera::kernels {

/// New positions of every row of a batch.
struct CacheShape {
  Dtype dtype = Dtype::fp32;
  std::int64_t batch = 0;
  std::int64_t queries = 0;  ///< new positions per row
  int heads = 0;             ///< heads of keys or values
  int head_dim = 0;
};
/// A cache of keys or values: (b, s, h) is at base + b * batch_stride + s * position_stride + h *
/// head_stride, in elements.
struct CacheView {
  void* base = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t position_stride = 0;
  std::int64_t head_stride = 0;  ///< 0: head_dim
};

/// cache (b, lengths[b] - queries + i, h) = rows (b, i, h) with T = queries. lengths [B] int32: the
/// positions of each row, the new ones included. 2 bytes read and 2 written per 16-bit element.
void append_to_cache(Queue& q, CacheShape const& shape, CacheView const& cache,
                     ConstHeadsView const& rows, ConstTensorView lengths);

}  // namespace tessera::kernels
