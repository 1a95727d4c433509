#pragma once
/// The operands of attention as typed rows of heads: for the host's tiles. No Kokkos here,
/// so that the tiles' vector code stays with the host compiler.

#include <cstdint>

#include "detail/convert.hpp"
#include "detail/dropout.hpp"
#include "detail/fast_math.hpp"
#include "tessera/kernels/attention.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::kernels::detail {

inline constexpr int max_head_dim = 256;

/// Element 0 of (b, t, h) is at base + (b * T + t) * row_stride + h * head_dim.
template <class T>
struct HeadRows {
  T* base = nullptr;
  std::int64_t row_stride = 0;
  int head_dim = 0;
  std::int64_t sequence = 0;
  TESSERA_FUNCTION T* row(std::int64_t b, std::int64_t t, int h) const {
    return base + (b * sequence + t) * row_stride + std::int64_t{h} * head_dim;
  }
};

template <class T>
struct AttentionRows {
  AttentionShape shape;
  HeadRows<T const> query, key, value;
  DropoutFactors drop;

  TESSERA_FUNCTION int group() const { return shape.heads / shape.kv_heads; }
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
  HeadRows<T> rows(void* base, std::int64_t stride) const {
    return {static_cast<T*>(base), stride, in.shape.head_dim, in.shape.sequence};
  }
  HeadRows<T const> rows(void const* base, std::int64_t stride) const {
    return {static_cast<T const*>(base), stride, in.shape.head_dim, in.shape.sequence};
  }
  /// Of out and dout, [B, T, heads * head_dim].
  std::int64_t packed_stride() const { return std::int64_t{in.shape.heads} * in.shape.head_dim; }

  HeadRows<T> rows(HeadsView const& view) const { return rows(view.base, view.row_stride); }
  HeadRows<T const> rows(ConstHeadsView const& view) const {
    return rows(view.base, view.row_stride);
  }

  AttentionOperands(AttentionConfig const& config, AttentionInput const& from)
      : in{config.shape, {}, {}, {}, DropoutFactors(config.drop)} {
    in.query = rows(from.query);
    in.key = rows(from.key);
    in.value = rows(from.value);
  }
};

}  // namespace tessera::kernels::detail
