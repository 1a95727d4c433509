#pragma once
/// Non-owning views of typed, contiguous, row-major memory.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"

namespace tessera::memory {

/// What an operation does to its output: out = result, or out += result.
enum class WriteMode { overwrite, add };

/// View of up to four dimensions. The element type is a run-time value, so that layers and models
/// need no templates. `Void` is void or void const: use TensorView and ConstTensorView.
template <class Void>
class BasicTensorView {
 public:
  using Byte = std::conditional_t<std::is_const_v<Void>, std::byte const, std::byte>;

  BasicTensorView() = default;
  BasicTensorView(Void* data, Dtype dtype, std::initializer_list<std::int64_t> dims)
      : data_(data), dtype_(dtype) {
    TESSERA_EXPECT(dims.size() <= 4);
    for (auto d : dims) dims_[static_cast<std::size_t>(rank_++)] = d;
  }
  /// A mutable view converts to a const one.
  template <class Other, class = std::enable_if_t<std::is_const_v<Void> && !std::is_const_v<Other>>>
  BasicTensorView(BasicTensorView<Other> const& other)  // NOLINT(google-explicit-constructor)
      : data_(other.data()), dtype_(other.dtype()), rank_(other.rank()), dims_(other.dims()) {}

  Void* data() const { return data_; }
  Dtype dtype() const { return dtype_; }
  int rank() const { return rank_; }
  std::array<std::int64_t, 4> const& dims() const { return dims_; }
  std::int64_t dim(int i) const {
    TESSERA_EXPECT(i >= 0 && i < rank_);
    return dims_[static_cast<std::size_t>(i)];
  }
  std::int64_t numel() const {
    std::int64_t n = rank_ > 0 ? 1 : 0;
    for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<std::size_t>(i)];
    return n;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }
  bool empty() const { return data_ == nullptr || numel() == 0; }

  /// Typed pointer. @pre T is the dtype of the view.
  template <class T>
  auto as() const {
    TESSERA_EXPECT(dtype_of<T>() == dtype_, "view of ", name_of(dtype_), " read as ",
                   name_of(dtype_of<T>()));
    if constexpr (std::is_const_v<Void>)
      return static_cast<T const*>(data_);
    else
      return static_cast<T*>(data_);
  }

  /// Returns a view of these elements with other dimensions. @pre the number of elements is equal
  BasicTensorView reshape(std::initializer_list<std::int64_t> dims) const {
    BasicTensorView out(data_, dtype_, dims);
    TESSERA_EXPECT(out.numel() == numel());
    return out;
  }
  BasicTensorView flat() const { return reshape({numel()}); }
  /// Rows [begin, begin + count) of the first dimension.
  BasicTensorView rows(std::int64_t begin, std::int64_t count) const {
    TESSERA_EXPECT(rank_ >= 1 && begin >= 0 && begin + count <= dims_[0]);
    BasicTensorView out = *this;
    std::int64_t const row = dims_[0] > 0 ? numel() / dims_[0] : 0;
    out.data_ = static_cast<Byte*>(data_) + static_cast<std::size_t>(begin * row) * size_of(dtype_);
    out.dims_[0] = count;
    return out;
  }

 private:
  Void* data_ = nullptr;
  Dtype dtype_ = Dtype::fp32;
  int rank_ = 0;
  std::array<std::int64_t, 4> dims_{};
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<void const>;

}  // namespace tessera::memory
