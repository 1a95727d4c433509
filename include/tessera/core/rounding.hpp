#pragma once
/// Marks functions that device code may call too, among them integers that are divided or padded
/// upwards.

#include <type_traits>

#if defined(__CUDACC__)
#define TESSERA_FUNCTION __host__ __device__
#else
#define TESSERA_FUNCTION
#endif

namespace tessera {

/// The parts of at most @p size that @p value takes. @pre value >= 0, size > 0, and their sum is a
/// T
template <class T>
TESSERA_FUNCTION constexpr T ceil_divide(T value, std::type_identity_t<T> size) {
  return static_cast<T>(value / size + (value % size != 0));
}

/// The smallest multiple of @p multiple that is not below @p value. @pre value >= 0, multiple > 0
template <class T>
TESSERA_FUNCTION constexpr T round_up(T value, std::type_identity_t<T> multiple) {
  return ceil_divide(value, multiple) * multiple;
}

}  // namespace tessera
