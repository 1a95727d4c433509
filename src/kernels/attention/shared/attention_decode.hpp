#pragma once
/// Attention of new positions against a key/value cache: the forward pass of generation.

#include "tessera/kernels/attention/attention.hpp"

namespace tessera::kernels {

struct DecodeShape {
  Dtype dtype = Dtype::fp32;
  std::int64_t batch = 0;
  std::int64_t queries = 0;  ///< new positions per row: 1, or a part of a prompt
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 1.0f;
  AttentionMask mask{};
  std::int64_t max_length = 0;  ///< no row of the cache holds more positions
};
/// A cache of keys or values: (b, s, h) is at base + b * batch_stride + s * position_stride + h *
/// head_stride, in elements.
struct ConstCacheView {
  void const* base = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t position_stride = 0;
  std::int64_t head_stride = 0;  ///< 0: head_dim
};
struct DecodeInput {
  ConstHeadsView query;  ///< (b, i, h) with T = queries
  ConstCacheView key, value;
  /// [B] int32: positions of each row in the cache, the new ones included; at least `queries`.
  ConstTensorView lengths;
};

/// Query i of row b is at position t = lengths[b] - queries + i and sees the keys s <= t that the
/// mask leaves: out[b,i,h,:] = sum_s softmax_s(scale q.k) v[s]. out [B, queries, heads * head_dim]
/// T, overwritten. Deterministic; the bits of a row depend neither on the other rows nor on
/// max_length. Each key and value is read once per 8 queries, those of the heads that share it
/// included.
/// @p workspace: at least attention_decode_workspace() fp32 elements; overwritten.
void attention_decode(Queue& q, DecodeShape const& shape, TensorView out, DecodeInput const& from,
                      TensorView workspace);
std::int64_t attention_decode_workspace(Queue const& q, DecodeShape const& shape);

}  // namespace tessera::kernels
