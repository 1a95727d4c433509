#include "tessera/core/exact_sum.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

constexpr int digit_bits = 32;
constexpr std::int64_t digit_mask = 0xffffffff;
constexpr int mantissa_bits = 52;
constexpr int special_exponent = 0x7ff;
/// Exponent of the lowest bit of digit 0.
constexpr int lowest_exponent = -1074;
constexpr std::size_t numbers = ExactSum::digits - 1;  ///< the last digit counts non-finite values

__extension__ using Wide = unsigned __int128;

}  // namespace

void ExactSum::add(double value) {
  auto const bits = std::bit_cast<std::uint64_t>(value);
  int const exponent = static_cast<int>(bits >> mantissa_bits) & special_exponent;
  if (exponent == special_exponent) {
    ++digits_[digits - 1];
    return;
  }
  std::uint64_t const fraction = bits & ((std::uint64_t{1} << mantissa_bits) - 1);
  std::uint64_t const mantissa =
      exponent == 0 ? fraction : fraction | std::uint64_t{1} << mantissa_bits;
  int const at = exponent == 0 ? 0 : exponent - 1;
  Wide const shifted = Wide{mantissa} << (at % digit_bits);
  std::int64_t const sign = (bits >> 63) != 0 ? -1 : 1;
  auto* const digit = digits_.data() + at / digit_bits;
  digit[0] += sign * (static_cast<std::int64_t>(shifted) & digit_mask);
  digit[1] += sign * (static_cast<std::int64_t>(shifted >> digit_bits) & digit_mask);
  digit[2] += sign * static_cast<std::int64_t>(shifted >> 2 * digit_bits);
}

void ExactSum::add(std::span<std::int64_t const, digits> other) {
  for (std::size_t i = 0; i < digits; ++i) digits_[i] += other[i];
}

void ExactSum::carry() {
  for (std::size_t i = 0; i + 1 < numbers; ++i) {
    digits_[i + 1] += digits_[i] >> digit_bits;
    digits_[i] &= digit_mask;
  }
}

double ExactSum::value() const {
  if (!is_finite()) return std::numeric_limits<double>::quiet_NaN();
  ExactSum magnitude = *this;
  magnitude.carry();
  bool const negative = magnitude.digits_[numbers - 1] < 0;
  if (negative) {
    for (std::size_t i = 0; i < numbers; ++i) magnitude.digits_[i] = -magnitude.digits_[i];
    magnitude.carry();
  }
  auto const& d = magnitude.digits_;
  std::size_t top = numbers - 1;
  while (top > 2 && d[top] == 0) --top;
  Wide leading = 0;
  for (std::size_t i = top + 1; i-- > top - 2;)
    leading = leading << digit_bits | static_cast<Wide>(d[i]);
  for (std::size_t i = 0; i + 2 < top; ++i)
    if (d[i] != 0) leading |= 1;  // decides between two doubles that are equally near
  double const value = std::ldexp(static_cast<double>(leading),
                                  lowest_exponent + digit_bits * static_cast<int>(top - 2));
  return negative ? -value : value;
}

}  // namespace tessera
