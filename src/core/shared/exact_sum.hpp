#pragma once
/// A sum of doubles without rounding: a fixed-point number with a digit for every 32 bits of their
/// range (a long accumulator, Kulisch, "Computer Arithmetic and Validity", 2013, chapter 8).
/// Integer additions commute, so the result depends on the values only: not on their order, and not
/// on which thread or rank adds which of them.

#include <array>
#include <cstdint>
#include <span>

namespace tessera {

class ExactSum {
 public:
  /// Digits of a sum: those of 2^-1074 to 2^1024, two for carries, and the count of values that are
  /// not finite.
  static constexpr std::size_t digits = 69;

  /// Adds a value; up to 2^30 of them between two calls of carry().
  void add(double value);
  /// Adds the digits of another sum after its carry(). The integer sums of 2^30 such arrays, as an
  /// all-reduce forms them, are a sum too.
  void add(std::span<std::int64_t const, digits> other);
  /// Brings the digits into their range. Equal sums have equal digits afterwards.
  void carry();
  std::span<std::int64_t, digits> data() { return digits_; }
  std::span<std::int64_t const, digits> data() const { return digits_; }

  /// The sum, rounded to the nearest double; NaN when a value was not finite.
  double value() const;
  bool is_finite() const { return digits_[digits - 1] == 0; }

 private:
  std::array<std::int64_t, digits> digits_{};
};

}  // namespace tessera
