#pragma once
/// fp8 operands by the definitions of the formats, in double precision.

#include <algorithm>
#include <cmath>
#include <vector>

#include "tessera/core/float8.hpp"

namespace tessera::test {

/// The largest power of two with which max|x| is at most the format's largest number.
inline double float8_scale(std::vector<float> const& x, Float8 format) {
  double const largest = format == Float8::e4m3 ? 448.0 : 57344.0;
  double most = 0.0, s = 1.0;
  for (float const v : x) most = std::max(most, std::abs(static_cast<double>(v)));
  if (most == 0.0) return 1.0;
  while (most * s * 2.0 <= largest) s *= 2.0;
  while (most * s > largest) s /= 2.0;
  return s;
}

/// The nearest number of the format, ties to even, at most the largest.
inline double float8_nearest(double x, Float8 format) {
  bool const e4m3 = format == Float8::e4m3;
  int const fraction = e4m3 ? 3 : 2, smallest = e4m3 ? -6 : -14;
  double const largest = e4m3 ? 448.0 : 57344.0;
  if (x == 0.0) return x;
  int const exponent = std::max(std::ilogb(x), smallest);
  double const unit = std::ldexp(1.0, exponent - fraction);
  return std::clamp(std::nearbyint(x / unit) * unit, -largest, largest);
}

/// What a product sees of x: cast with its scale, and back.
inline std::vector<double> through_float8(std::vector<float> const& x, Float8 format) {
  double const s = float8_scale(x, format);
  std::vector<double> out;
  for (float const v : x) out.push_back(float8_nearest(v * s, format) / s);
  return out;
}

}  // namespace tessera::test
