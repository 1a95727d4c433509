#pragma once
/// The parts that the host's forward and backward attention share: rows of heads in memory and
/// their fp32 tiles.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "attention/attention_operands.hpp"
#include "gemm/tile_product.hpp"
#include "tessera/memory/work_trace.hpp"

namespace tessera::kernels::detail {

inline constexpr int key_tile = 64;
/// Heads are padded with zeros to full vectors of any instruction set.
constexpr int padded_head(int head_dim) { return (head_dim + 15) / 16 * 16; }

/// `count` rows of one head from position `first`.
struct HeadRange {
  std::int64_t b, first;
  int h, count;
};
/// tile[i, :] = factor * row(b, first + i, h) for rows inside the sequence, 0 for the other rows
/// and for the padding.
template <class T>
inline void pack_rows(float* tile, int width, HeadRows<T> const& rows, HeadRange const& range,
                      float factor = 1.0f) {
  auto const [b, first, h, count] = range;
  int const inside = static_cast<int>(std::clamp<std::int64_t>(rows.sequence - first, 0, count));
  for (int i = 0; i < inside; ++i) {
    T const* const from = rows.row(b, first + i, h);
    float* const to = tile + i * width;
#pragma omp simd
    for (int c = 0; c < rows.head_dim; ++c) to[c] = load(from[c]) * factor;
    for (int c = rows.head_dim; c < width; ++c) to[c] = 0.0f;
  }
  std::fill(tile + inside * width, tile + count * width, 0.0f);
}

template <class T>
inline void unpack_row(T* out, float const* row, int head_dim, float factor) {
#pragma omp simd
  for (int c = 0; c < head_dim; ++c) store(out[c], row[c] * factor);
}

/// The keys that tile_rows queries from position t see in the key tile from position s.
struct KeySpan {
  int keys;    ///< that any of the rows may see; <= 0: none
  int padded;  ///< to full vectors
};
inline KeySpan span_of(std::int64_t t, std::int64_t s, std::int64_t sequence) {
  std::int64_t const last = std::min(t + tile_rows, sequence) - 1;
  int const keys = static_cast<int>(std::min<std::int64_t>(key_tile, last - s + 1));
  return {keys, (keys + tile_lanes - 1) / tile_lanes * tile_lanes};
}
/// The keys [begin, end) of the tile that one query sees.
struct SeenKeys {
  int begin, end;
  bool none() const { return begin >= end; }
};
/// @p first  the first key of all that the query sees
inline SeenKeys seen_keys(KeySpan const& span, std::int64_t first, std::int64_t t, std::int64_t s) {
  return {static_cast<int>(std::clamp<std::int64_t>(first - s, 0, span.padded)),
          static_cast<int>(std::min<std::int64_t>(span.keys, t - s + 1))};
}
/// Sets the scores of keys that are not seen to -inf.
inline void mask_scores(float* row, SeenKeys const& seen, int padded) {
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  for (int c = 0; c < seen.begin; ++c) row[c] = nothing;
  for (int c = seen.end; c < padded; ++c) row[c] = nothing;
}
inline void cap_scores(float* row, int n, SoftCap const& cap) {
#pragma omp simd
  for (int c = 0; c < n; ++c) row[c] = cap.value(row[c]);
}

/// One step of the online softmax: row = exp(row - running max). @return the factor for sums formed
/// with the previous running max
inline float update_softmax(float* row, int padded_keys, float& running_max, float& running_sum) {
  float new_max = running_max, sum = 0.0f;
#pragma omp simd reduction(max : new_max)
  for (int c = 0; c < padded_keys; ++c) new_max = row[c] > new_max ? row[c] : new_max;
#pragma omp simd reduction(+ : sum)
  for (int c = 0; c < padded_keys; ++c) {
    row[c] = fast_exp(row[c] - new_max);
    sum += row[c];
  }
  float const correction = fast_exp(running_max - new_max);
  running_max = new_max;
  running_sum = running_sum * correction + sum;
  return correction;
}

inline void check_documents(AttentionShape const& shape, ConstTensorView documents) {
  TESSERA_EXPECT(documents.empty() || documents.numel() == shape.batch * shape.sequence);
}

/// Records the work of @p products products of queries and keys in a WorkTrace. False: there is
/// none, and the kernel runs.
inline bool is_planned(Queue const& q, AttentionConfig const& config, double products) {
  auto* const trace = memory::WorkTrace::active();
  if (!trace) return false;
  auto const& shape = config.shape;
  std::int64_t const t = shape.sequence,
                     w = shape.mask.window > 0 ? std::min(shape.mask.window, t) : t;
  double const pairs = static_cast<double>(w) * static_cast<double>(w + 1) / 2.0 +
                       static_cast<double>(t - w) * static_cast<double>(w);
  double const rows = static_cast<double>(shape.batch * shape.heads * shape.head_dim);
  trace->add(q, {.kind = memory::PlannedWork::Kind::attention,
                 .dtype = config.dtype,
                 .m = shape.batch * shape.heads * t,
                 .n = t,
                 .k = shape.head_dim,
                 .flops = products * 2.0 * rows * pairs});
  return true;
}

inline void check_attention(AttentionShape const& shape) {
  TESSERA_VALIDATE(shape.heads > 0 && shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
                   ConfigError, "attention with ", shape.heads, " heads and ", shape.kv_heads,
                   " key-value heads: the second number must divide the first");
  TESSERA_VALIDATE(shape.head_dim > 0 && shape.head_dim <= max_head_dim, ConfigError,
                   "attention heads are ", shape.head_dim, " wide; 1 to ", max_head_dim,
                   " are supported, use more heads");
  TESSERA_VALIDATE(shape.mask.window >= 0 && shape.mask.soft_cap >= 0.0f, ConfigError,
                   "attention with a window of ", shape.mask.window, " and a soft cap of ",
                   shape.mask.soft_cap, ": both must be positive, or 0 for none");
}

}  // namespace tessera::kernels::detail
