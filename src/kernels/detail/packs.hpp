#pragma once
/// Neighbouring elements that a device loads and stores together: 16 bytes an instruction.

#include <cstdint>

#include "detail/convert.hpp"

namespace tessera::kernels::detail {

/// Elements in 16 bytes.
template <class T>
inline constexpr int pack_of = static_cast<int>(16 / sizeof(T));

/// N elements as they lie in memory. @pre of reading and writing them whole: the address is aligned to Pack.
template <class T, int N>
struct alignas(N * sizeof(T) >= 16 ? 16 : N * sizeof(T)) Pack {
  T v[N];

  TESSERA_FUNCTION static Pack read(T const* from) { return *reinterpret_cast<Pack const*>(from); }
  TESSERA_FUNCTION void write(T* to) const { *reinterpret_cast<Pack*>(to) = *this; }
  TESSERA_FUNCTION float get(int i) const { return load(v[i]); }
  TESSERA_FUNCTION void set(int i, float value) { store(v[i], value); }
};

/// Whether rows of @p stride elements from each of the addresses on can be read in packs of 16 bytes or more.
template <int N, class... Data>
bool in_packs(std::int64_t stride, Data const*... data) {
  return stride % N == 0 && ((reinterpret_cast<std::uintptr_t>(data) % 16 == 0) && ...);
}

}  // namespace tessera::kernels::detail
