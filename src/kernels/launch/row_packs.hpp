#pragma once
/// Rows of a matrix in packs of 16 bytes, or element by element where width or address does not
/// allow it.

#include <type_traits>

#include "launch/pack.hpp"

namespace tessera::kernels::detail {

/// Elements in 16 bytes.
template <class T>
inline constexpr int pack_of = static_cast<int>(16 / sizeof(T));

/// Whether rows of @p columns elements from each of the addresses on consist of packs of N
/// elements.
template <int N, class... Data>
bool in_packs(std::int64_t columns, Data const*... data) {
  return columns % N == 0 && ((reinterpret_cast<std::uintptr_t>(data) % 16 == 0) && ...);
}

/// Whether each stride consists of packs of N elements.
template <int N, class... Strides>
constexpr bool strides_in_packs(Strides... strides) {
  return ((strides % N == 0) && ...);
}

/// One element with the interface of a Pack.
template <class T>
struct Single {
  T element;
  TESSERA_FUNCTION void read(T const* from) { element = *from; }
  TESSERA_FUNCTION void write(T* to) const { *to = element; }
  TESSERA_FUNCTION float get(int) const { return load(element); }
  TESSERA_FUNCTION void set(int, float value) { store(element, value); }
};

/// N neighboring elements of a row.
template <class T, int N>
using RowPack = std::conditional_t<N == 1, Single<T>, Pack<T, N>>;

/// Converts and writes N neighboring elements in packs of up to 16 bytes.
template <int N, class T>
TESSERA_FUNCTION void write_floats(T* to, float const (&value)[N]) {
  constexpr int each = N < pack_of<T> ? N : pack_of<T>;
  TESSERA_UNROLL
  for (int at = 0; at < N; at += each) {
    RowPack<T, each> out;
    TESSERA_UNROLL
    for (int i = 0; i < each; ++i) out.set(i, value[at + i]);
    out.write(to + at);
  }
}
template <int N, class T>
TESSERA_FUNCTION void read_floats(float (&value)[N], T const* from) {
  constexpr int each = N < pack_of<T> ? N : pack_of<T>;
  TESSERA_UNROLL
  for (int at = 0; at < N; at += each) {
    RowPack<T, each> in;
    in.read(from + at);
    TESSERA_UNROLL
    for (int i = 0; i < each; ++i) value[at + i] = in.get(i);
  }
}

}  // namespace tessera::kernels::detail
