#pragma once
/// Typed arrays, tolerances and serial double-precision references for the kernels' tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tessera/core/random.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels::test {

using Reals = std::vector<double>;

/// Elements of any floating-point dtype (or int32 tokens), with dimensions.
class Array {
 public:
  Array(Dtype dtype, std::initializer_list<std::int64_t> dims)
      : dtype_(dtype), dims_(dims), bytes_(ConstTensorView(nullptr, dtype, dims).bytes()) {}

  TensorView view() { return make<TensorView>(bytes_.data()); }
  ConstTensorView view() const { return make<ConstTensorView>(bytes_.data()); }
  Dtype dtype() const { return dtype_; }
  std::int64_t numel() const { return view().numel(); }
  std::vector<std::byte> const& bytes() const { return bytes_; }
  void* data() { return bytes_.data(); }
  void const* data() const { return bytes_.data(); }

  double get(std::int64_t i) const {
    auto const at = static_cast<std::size_t>(i);
    switch (dtype_) {
      case Dtype::fp32:
        return reinterpret_cast<float const*>(bytes_.data())[at];
      case Dtype::fp16:
        return reinterpret_cast<float16 const*>(bytes_.data())[at];
      case Dtype::bf16:
        return reinterpret_cast<bfloat16 const*>(bytes_.data())[at];
      default:
        return reinterpret_cast<std::int32_t const*>(bytes_.data())[at];
    }
  }
  void set(std::int64_t i, double value) {
    auto const at = static_cast<std::size_t>(i);
    switch (dtype_) {
      case Dtype::fp32:
        reinterpret_cast<float*>(bytes_.data())[at] = static_cast<float>(value);
        break;
      case Dtype::fp16:
        reinterpret_cast<float16*>(bytes_.data())[at] = float16(static_cast<float>(value));
        break;
      case Dtype::bf16:
        reinterpret_cast<bfloat16*>(bytes_.data())[at] = bfloat16(static_cast<float>(value));
        break;
      default:
        reinterpret_cast<std::int32_t*>(bytes_.data())[at] = static_cast<std::int32_t>(value);
        break;
    }
  }
  Reals values() const {
    Reals out(static_cast<std::size_t>(numel()));
    for (std::int64_t i = 0; i < numel(); ++i) out[static_cast<std::size_t>(i)] = get(i);
    return out;
  }
  /// Uniform in [-size, size) + middle, rounded to the dtype.
  Array& randomize(std::uint64_t seed, double size = 1.0, double middle = 0.0) {
    Philox const random{seed, 1};
    for (std::int64_t i = 0; i < numel(); ++i)
      set(i, middle + size * (2.0 * random.uniform(static_cast<std::uint64_t>(i)) - 1.0));
    return *this;
  }
  bool operator==(Array const& other) const { return bytes_ == other.bytes_; }

 private:
  template <class View, class Data>
  View make(Data* data) const {
    switch (dims_.size()) {
      case 1:
        return View(data, dtype_, {dims_[0]});
      case 2:
        return View(data, dtype_, {dims_[0], dims_[1]});
      case 3:
        return View(data, dtype_, {dims_[0], dims_[1], dims_[2]});
      default:
        return View(data, dtype_, {dims_.at(0), dims_.at(1), dims_.at(2), dims_.at(3)});
    }
  }

  Dtype dtype_;
  std::vector<std::int64_t> dims_;
  std::vector<std::byte> bytes_;
};

/// Half the distance between neighboring numbers of a dtype, relative.
inline double rounding(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return 0x1.0p-9;
    case Dtype::fp16:
      return 0x1.0p-12;
    default:
      return 0x1.0p-25;
  }
}

/// Each element within `fp32_error` of the largest magnitude, plus one rounding to the dtype (and
/// fp16's smallest step).
/// @param largest at least this magnitude, where elements are small differences of larger numbers
inline void expect_close(Array const& got, Reals const& want, double fp32_error = 1e-6,
                         double largest = 1e-30) {
  ASSERT_EQ(static_cast<std::size_t>(got.numel()), want.size());
  for (double w : want) largest = std::max(largest, std::abs(w));
  for (std::size_t i = 0; i < want.size(); ++i) {
    double const value = got.get(static_cast<std::int64_t>(i));
    double const allowed = fp32_error * largest +
                           2.001 * rounding(got.dtype()) * std::abs(want[i]) +
                           (got.dtype() == Dtype::fp16 ? 6e-8 : 0.0);
    ASSERT_LE(std::abs(value - want[i]), allowed)
        << "element " << i << " is " << value << ", expected " << want[i];
  }
}

/// The factors of elements [0, n) one by one.
inline Reals dropout_factors(Dropout const& drop, std::int64_t n) {
  Reals out(static_cast<std::size_t>(n), 1.0);
  Philox const random{drop.seed, drop.stream};
  if (drop.p > 0.0f) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = random.uniform(drop.first_element + i) < drop.p
                   ? 0.0
                   : 1.0 / (1.0 - static_cast<double>(drop.p));
  }
  return out;
}

/// Every suite runs for the three element types.
class KernelTest : public ::testing::TestWithParam<Dtype> {
 protected:
  std::unique_ptr<Queue> queue = memory::make_inline_queue("compute");
  Dtype dtype = GetParam();
};

inline auto all_dtypes() { return ::testing::Values(Dtype::fp32, Dtype::fp16, Dtype::bf16); }
inline std::string dtype_test_name(::testing::TestParamInfo<Dtype> const& info) {
  return std::string(name_of(info.param));
}

}  // namespace tessera::kernels::test

#define TESSERA_KERNEL_SUITE(suite)                                               \
  using suite = ::tessera::kernels::test::KernelTest;                             \
  INSTANTIATE_TEST_SUITE_P(Dtypes, suite, ::tessera::kernels::test::all_dtypes(), \
                           ::tessera::kernels::test::dtype_test_name)
