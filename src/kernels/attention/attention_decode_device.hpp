#pragma once
/// Operands of attention against a cache, and the device's traversal: a team per query of a head.
/// The host's is attention_decode.cpp.

#include "attention/attention_operands.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/kernels/attention/attention_decode.hpp"

namespace tessera::kernels::detail {

/// Positions whose softmax the host forms separately.
inline constexpr int decode_chunk = 512;

template <class T>
struct CacheRows {
  T const* base = nullptr;
  std::int64_t batch_stride = 0, position_stride = 0, head_stride = 0;
  TESSERA_FUNCTION T const* row(std::int64_t b, std::int64_t s, int h) const {
    return base + b * batch_stride + s * position_stride + h * head_stride;
  }
};

template <class T>
struct DecodeCall {
  DecodeShape shape;
  StridedHeads<T const> query;
  CacheRows<T> key, value;
  std::int32_t const* lengths;
  T* out;
  float* parts;

  TESSERA_FUNCTION int group() const { return shape.heads / shape.kv_heads; }
  TESSERA_FUNCTION std::int64_t row_index(std::int64_t b, std::int64_t query_index,
                                          int head) const {
    return (b * shape.queries + query_index) * shape.heads + head;
  }
  TESSERA_FUNCTION T const* query_row(std::int64_t b, std::int64_t query_index, int head) const {
    return query.at(b * shape.queries + query_index, head);
  }
  TESSERA_FUNCTION T* out_row(std::int64_t b, std::int64_t query_index, int head) const {
    return out + row_index(b, query_index, head) * shape.head_dim;
  }
};

template <class T>
DecodeCall<T> decode_call(DecodeShape const& shape, TensorView out, DecodeInput const& from,
                          float* parts) {
  auto const cache = [&](ConstCacheView const& view) -> CacheRows<T> {
    return {static_cast<T const*>(view.base), view.batch_stride, view.position_stride,
            head_stride_of(view.head_stride, shape.head_dim)};
  };
  return {shape,
          strided_heads<T>(from.query, shape.head_dim),
          cache(from.key),
          cache(from.value),
          from.lengths.as<std::int32_t>(),
          out.as<T>(),
          parts};
}

/// A team of threads processes one query of one head: `Threads` keys at a time, a key per thread
/// for the scores, a column per thread for the values.
template <class T, int Threads>
struct TeamDecode {
  static constexpr int keys = Threads < 32 ? 32 : Threads;            ///< per step
  static constexpr int columns = ceil_divide(max_head_dim, Threads);  ///< per thread, at most
  static constexpr std::size_t scratch_floats = max_head_dim + keys;

  DecodeCall<T> call;
  SoftCap cap{call.shape.mask.soft_cap};

  std::int64_t teams() const { return call.shape.batch * call.shape.queries * call.shape.heads; }

  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    DecodeShape const& shape = call.shape;
    int const head = static_cast<int>(index % shape.heads), kv = head / call.group(),
              dim = shape.head_dim, thread = team.rank();
    std::int64_t const query = index / shape.heads, b = query / shape.queries,
                       i = query % shape.queries, t = call.lengths[b] - shape.queries + i;
    float *const q = team.scratch(), *const p = q + max_head_dim;
    T const* const row = call.query_row(b, i, head);
    for (int c = thread; c < dim; c += Threads) q[c] = load(row[c]) * shape.scale;
    float sum[columns] = {};
    float running_max = -std::numeric_limits<float>::infinity(), running_sum = 0.0f;
    for (std::int64_t s0 = first_key(shape.mask, t); s0 <= t; s0 += keys) {
      int const count = t + 1 - s0 < keys ? static_cast<int>(t + 1 - s0) : keys;
      team.barrier();  // q is written, p is read
      for (int k = thread; k < count; k += Threads) p[k] = score(q, call.key.row(b, s0 + k, kv));
      team.barrier();
      float new_max = running_max, added = 0.0f;
      for (int k = 0; k < count; ++k) new_max = p[k] > new_max ? p[k] : new_max;
      float const correction = fast_exp(running_max - new_max);
      for (int c = 0; c < columns; ++c) sum[c] *= correction;
      for (int k = 0; k < count; ++k) {
        float const weight = fast_exp(p[k] - new_max);
        added += weight;
        T const* const value = call.value.row(b, s0 + k, kv);
        for (int c = 0; c < columns; ++c)
          if (thread + c * Threads < dim) sum[c] += weight * load(value[thread + c * Threads]);
      }
      running_max = new_max;
      running_sum = running_sum * correction + added;
    }
    T* const to = call.out_row(b, i, head);
    for (int c = 0; c < columns; ++c)
      if (thread + c * Threads < dim) store(to[thread + c * Threads], sum[c] / running_sum);
  }

 private:
  TESSERA_FUNCTION float score(float const* q, T const* key) const {
    float dot = 0.0f;
    for (int c = 0; c < call.shape.head_dim; ++c) dot += q[c] * load(key[c]);
    return cap.active() ? cap.value(dot) : dot;
  }
};

/// Starts the portable kernel; in attention_launch.cpp.
template <class T>
void decode_on_device(Queue& q, DecodeCall<T> const& call);

}  // namespace tessera::kernels::detail
