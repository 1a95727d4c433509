#pragma once
/// The workspace of the host's attention_backward().

#include "attention/attention_tiles.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

/// Sums per (b, query head): dq and delta; for shared key-value heads each query head's part of dk
/// and dv.
struct AttentionSums {
  std::int64_t rows = 0;  ///< rows of a head, padded to full tiles
  std::int64_t width = 0;
  std::int64_t heads = 0;
  bool shared = false;

  explicit AttentionSums(AttentionShape const& shape)
      : rows(round_up(shape.sequence, key_tile)),
        width(padded_head(shape.head_dim)),
        heads(shape.batch * shape.heads),
        shared(shape.kv_heads != shape.heads) {}

  std::int64_t numel() const { return heads * rows * (width + 1 + (shared ? 2 * width : 0)); }
  float* dq(float* base, std::int64_t head) const { return base + head * rows * width; }
  float* delta(float* base, std::int64_t head) const {
    return base + heads * rows * width + head * rows;
  }
  float* dk(float* base, std::int64_t head) const {
    return base + heads * rows * (width + 1) + 2 * head * rows * width;
  }
  float* dv(float* base, std::int64_t head) const { return dk(base, head) + rows * width; }
};

/// The sums over a head's rows of dout . out.
template <class T>
inline void sum_delta(AttentionRowsBackward<T> const& from, std::int64_t head, float* delta) {
  AttentionShape const& shape = from.in.shape;
  std::int64_t const b = head / shape.heads;
  int const h = static_cast<int>(head % shape.heads);
  for (std::int64_t t = 0; t < shape.sequence; ++t) {
    T const *const a = from.dout.row(b, t, h), *const o = from.out.row(b, t, h);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int c = 0; c < shape.head_dim; ++c) sum += load(a[c]) * load(o[c]);
    delta[t] = sum;
  }
}

/// What the tasks of a backward pass write: gradients, or a query head's part of shared ones.
template <class T>
struct AttentionGradientRows {
  HeadRows<T> dquery, dkey, dvalue;
};

}  // namespace tessera::kernels::detail
