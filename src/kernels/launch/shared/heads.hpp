#pragma once
/// Rows of attention heads inside larger rows of memory.

#include <cstdint>

namespace tessera::kernels {

/// Rows of all heads: (b, t, h) is at base + (b * T + t) * row_stride + h * head_stride, in
/// elements. The fused projection [B, T, 3C] of GPT-2 is three such views with row_stride 3C. That
/// of GPT-NeoX, which has query, key and value of one head next to each other, also has head_stride
/// 3 * head_dim.
struct HeadsView {
  void* base = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;  ///< 0: head_dim
};
struct ConstHeadsView {
  void const* base = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;  ///< 0: head_dim

  ConstHeadsView() = default;
  ConstHeadsView(void const* at, std::int64_t row, std::int64_t head = 0)
      : base(at), row_stride(row), head_stride(head) {}
  ConstHeadsView(HeadsView const& view)  // NOLINT(google-explicit-constructor)
      : ConstHeadsView(view.base, view.row_stride, view.head_stride) {}
};

}  // namespace tessera::kernels
