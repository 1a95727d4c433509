#pragma once
/// Sums in double that vectorize: element i goes to sum i mod width, and the sums are added
/// pairwise at the end. So the order is the same with and without vectors.

#include <cstdint>

#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

template <int width>
class InterleavedSums {
 public:
  /// Adds value(0), value(1), ... up to @p count; a multiple of `width` except in the last call.
  template <class Value>
  TESSERA_FUNCTION void add(int count, Value const& value) {
    // in registers: without a condition in its inner loop, full groups vectorize
    double sums[width];
    for (int j = 0; j < width; ++j) sums[j] = sums_[j];
    int i = 0;
    for (; i + width <= count; i += width)
      for (int j = 0; j < width; ++j) sums[j] += value(i + j);
    for (int j = 0; j < width; ++j) sums_[j] = sums[j];
    for (; i < count; ++i) sums_[i % width] += value(i);
  }

  /// Adds value(x) of @p count elements x that fill(first, n, x) gives, at most `block` at a time.
  /// For long rows: sums stay in registers from one block to the next.
  template <int block, class Fill, class Value>
  TESSERA_FUNCTION void add_blocks(std::int64_t count, Fill const& fill, Value const& value) {
    static_assert(block % width == 0);
    double sums[width];
    float x[block];
    for (int j = 0; j < width; ++j) sums[j] = sums_[j];
    std::int64_t first = 0;
    for (; first + block <= count; first += block) {
      fill(first, block, x);
      for (int i = 0; i < block; i += width)
        for (int j = 0; j < width; ++j) sums[j] += value(x[i + j]);
    }
    for (int j = 0; j < width; ++j) sums_[j] = sums[j];
    if (first == count) return;
    int const rest = static_cast<int>(count - first);
    fill(first, rest, x);
    add(rest, [&x, &value](int i) { return value(x[i]); });
  }

  TESSERA_FUNCTION double total() const {
    double sums[width];
    for (int j = 0; j < width; ++j) sums[j] = sums_[j];
    for (int half = width / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
    return sums[0];
  }

 private:
  double sums_[width] = {};
};

TESSERA_FUNCTION inline double square(float x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

}  // namespace tessera::kernels::detail
