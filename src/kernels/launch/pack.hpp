#pragma once
/// Neighboring elements that a device reads or writes in one access of up to 16 bytes.

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "launch/convert.hpp"
#include "launch/device_code.hpp"
#include "launch/warp.hpp"
#include "tessera/core/error.hpp"

/// Unrolls a loop in device code, so that arrays it indexes become registers. Host compilers decide
/// themselves.
#if defined(TESSERA_DEVICE_CODE)
#define TESSERA_UNROLL _Pragma("unroll")
#else
#define TESSERA_UNROLL
#endif

namespace tessera::kernels::detail {

/// N elements of T as 32-bit words, one per register; not widened to fp32 until they are used.
template <class T, int N>
struct Pack {
  static constexpr std::size_t bytes = N * sizeof(T);
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  std::uint32_t word[bytes / 4];  ///< the lower half is the earlier element

  /// Addresses are multiples of `bytes`. Device code uses vector types for the load and the PTX
  /// instruction for the store, because the compiler splits vector assignments.
  TESSERA_FUNCTION void read(T const* from) {
#if defined(TESSERA_PTX)
    if constexpr (bytes == 16) {
      uint4 const v = *reinterpret_cast<uint4 const*>(from);
      word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
    } else if constexpr (bytes == 8) {
      uint2 const v = *reinterpret_cast<uint2 const*>(from);
      word[0] = v.x, word[1] = v.y;
    } else {
      word[0] = *reinterpret_cast<std::uint32_t const*>(from);
    }
#else
    expect_aligned(from);
    std::memcpy(word, from, bytes);
#endif
  }
  TESSERA_FUNCTION void write(T* to) const {
#if defined(TESSERA_PTX)
    auto const at = __cvta_generic_to_global(to);
    if constexpr (bytes == 16)
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(word[0]), "r"(word[1]),
                   "r"(word[2]), "r"(word[3])
                   : "memory");
    else if constexpr (bytes == 8)
      asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(word[0]), "r"(word[1])
                   : "memory");
    else
      asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(word[0]) : "memory");
#else
    expect_aligned(to);
    std::memcpy(to, word, bytes);
#endif
  }

  TESSERA_FUNCTION float get(int i) const {
    if constexpr (std::is_same_v<T, float>) {
      return std::bit_cast<float>(word[i]);
    } else {
      T element;
      element.bits = static_cast<std::uint16_t>(word[i / 2] >> (16 * (i % 2)));
      return load(element);
    }
  }
  /// Sets element @p i; calls come in ascending order.
  TESSERA_FUNCTION void set(int i, float value) {
    if constexpr (std::is_same_v<T, float>) {
      word[i] = std::bit_cast<std::uint32_t>(value);
    } else {
      T element;
      store(element, value);
      std::uint32_t const bits = element.bits;
      word[i / 2] = i % 2 == 0 ? bits : word[i / 2] | bits << 16;
    }
  }

 private:
  /// A device faults on other addresses. A host that runs the device's traversal for a test must
  /// fail as well.
  static void expect_aligned(void const* address) {
    TESSERA_VALIDATE(reinterpret_cast<std::uintptr_t>(address) % bytes == 0, InternalError,
                     "a pack of ", bytes, " bytes is at address ", address,
                     ", which is not a multiple of its size");
  }
};
/// No operand.
template <int N>
struct Pack<void, N> {
  TESSERA_FUNCTION void read(void const*) {}
};

template <class T>
inline constexpr int element_bytes = sizeof(T);
template <>
inline constexpr int element_bytes<void> = 0;

/// Elements between the last boundary of packs of @p pack elements and @p data.
template <class T>
TESSERA_FUNCTION int elements_past_boundary(T const* data, int pack) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(data) / sizeof(T) %
                          static_cast<std::uintptr_t>(pack));
}
/// Whether @p data is @p shift elements past a boundary; true without an operand.
template <class T>
TESSERA_FUNCTION bool shares_boundary(T const* data, int pack, int shift) {
  if constexpr (std::is_void_v<T>)
    return true;
  else
    return elements_past_boundary(data, pack) == shift;
}

// Rows of a matrix in packs of 16 bytes, or element by element where width or address does not
// allow it.

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
