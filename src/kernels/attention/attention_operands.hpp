#pragma once
/// The operands of attention as typed rows of heads: for the host's tiles. No Kokkos here,
/// so that the tiles' vector code stays with the host compiler.

#include <cstdint>

#include "elementwise/dropout.hpp"
#include "launch/convert.hpp"
#include "launch/fast_math.hpp"
#include "launch/strided_heads.hpp"
#include "tessera/kernels/attention/attention.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::kernels::detail {

inline constexpr int max_head_dim = 256;

/// Element 0 of (b, t, h) is at base + (b * T + t) * row_stride + h * head_stride.
template <class T>
struct HeadRows {
  T* base = nullptr;
  std::int64_t row_stride = 0, head_stride = 0;
  int head_dim = 0;
  std::int64_t sequence = 0;
  TESSERA_FUNCTION T* row(std::int64_t b, std::int64_t t, int h) const {
    return base + (b * sequence + t) * row_stride + h * head_stride;
  }
};

/// The first key that query t sees.
TESSERA_FUNCTION inline std::int64_t first_key(AttentionMask const& mask, std::int64_t t) {
  return mask.window > 0 && t >= mask.window ? t - mask.window + 1 : 0;
}
/// The tile of `size` keys that holds the first key that query t sees.
TESSERA_FUNCTION inline std::int64_t first_key_tile(AttentionMask const& mask, std::int64_t t,
                                                    int size) {
  return first_key(mask, t) / size * size;
}

/// Which keys the queries of one row see: those up to their own, in their window and document. The
/// first one does not decrease from query to query.
struct SeenInRow {
  AttentionMask mask;
  std::int64_t sequence = 0;
  std::int32_t const* documents = nullptr;  ///< [T] first token of each token's; null: one document

  TESSERA_FUNCTION std::int64_t first_key(std::int64_t t) const {
    std::int64_t const of_window = detail::first_key(mask, t);
    if (documents == nullptr || t >= sequence) return of_window;
    return documents[t] > of_window ? documents[t] : of_window;
  }
  TESSERA_FUNCTION std::int64_t first_key_tile(std::int64_t t, int size) const {
    return first_key(t) / size * size;
  }
  /// One past the last query that sees key s.
  TESSERA_FUNCTION std::int64_t end_of_queries(std::int64_t s) const {
    std::int64_t end = mask.window > 0 && s + mask.window < sequence ? s + mask.window : sequence;
    if (documents == nullptr) return end;
    for (std::int64_t sees = s; end - sees > 1;) {
      std::int64_t const middle = sees + (end - sees) / 2;
      (documents[middle] <= s ? sees : end) = middle;
    }
    return end;
  }
};

template <class T>
struct AttentionRows {
  AttentionShape shape;
  HeadRows<T const> query, key, value;
  DropoutFactors drop;
  std::int32_t const* documents = nullptr;  ///< [B, T], or null

  TESSERA_FUNCTION int group() const { return shape.heads / shape.kv_heads; }
  TESSERA_FUNCTION SeenInRow seen(std::int64_t b) const {
    return {shape.mask, shape.sequence,
            documents == nullptr ? nullptr : documents + b * shape.sequence};
  }
};

/// What the backward pass reads.
template <class T>
struct AttentionRowsBackward {
  AttentionRows<T> in;
  HeadRows<T const> dout, out;
  float const* lse;
};

/// The operands of a call as typed rows.
template <class T>
struct AttentionOperands {
  AttentionRows<T> in;
  HeadRows<T> rows(HeadsView const& view) const {
    return {static_cast<T*>(view.base), view.row_stride,
            head_stride_of(view.head_stride, in.shape.head_dim), in.shape.head_dim,
            in.shape.sequence};
  }
  HeadRows<T const> rows(ConstHeadsView const& view) const {
    return {static_cast<T const*>(view.base), view.row_stride,
            head_stride_of(view.head_stride, in.shape.head_dim), in.shape.head_dim,
            in.shape.sequence};
  }
  /// Elements from one row of out and dout, [B, T, heads * head_dim], to the next.
  std::int64_t packed_stride() const { return std::int64_t{in.shape.heads} * in.shape.head_dim; }
  HeadRows<T> packed(void* base) const { return rows(HeadsView{base, packed_stride()}); }
  HeadRows<T const> packed(void const* base) const {
    return rows(ConstHeadsView{base, packed_stride()});
  }

  AttentionOperands(AttentionConfig const& config, AttentionInput const& from)
      : in{config.shape, {}, {}, {}, DropoutFactors(config.drop)} {
    in.query = rows(from.query);
    in.key = rows(from.key);
    in.value = rows(from.value);
    if (!from.documents.empty()) in.documents = from.documents.as<std::int32_t>();
  }
};

}  // namespace tessera::kernels::detail
