#pragma once
/// Heads as typed rows: head h of row r is at base + r * row_stride + h * head_stride.

#include "tessera/core/rounding.hpp"
#include "tessera/kernels/launch/heads.hpp"

namespace tessera::kernels::detail {

template <class T>
struct StridedHeads {
  T* base = nullptr;
  std::int64_t row_stride = 0, head_stride = 0;
  TESSERA_FUNCTION T* at(std::int64_t row, int head) const {
    return base + row * row_stride + head * head_stride;
  }
};

/// The distance of two heads of @p width elements.
inline std::int64_t head_stride_of(std::int64_t head_stride, std::int64_t width) {
  return head_stride > 0 ? head_stride : width;
}
template <class T>
StridedHeads<T> strided_heads(HeadsView const& view, std::int64_t width) {
  return {static_cast<T*>(view.base), view.row_stride, head_stride_of(view.head_stride, width)};
}
template <class T>
StridedHeads<T const> strided_heads(ConstHeadsView const& view, std::int64_t width) {
  return {static_cast<T const*>(view.base), view.row_stride,
          head_stride_of(view.head_stride, width)};
}

}  // namespace tessera::kernels::detail
