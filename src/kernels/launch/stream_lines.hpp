#pragma once
/// Stores past the caches, from registers. Sources that a device's compiler translates store
/// normally: nvcc's parser does not know all of the intrinsics' types.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "launch/device_code.hpp"

#if defined(__AVX__) && !defined(TESSERA_DEVICE_COMPILER)
#include <immintrin.h>
#define TESSERA_STREAMS_LINES
#endif

namespace tessera::kernels::detail {

inline constexpr std::size_t cache_line = 64;

/// Bytes from @p address to the next border of cache lines.
inline std::size_t bytes_to_line(void const* address) {
  return (cache_line - reinterpret_cast<std::uintptr_t>(address) % cache_line) % cache_line;
}

/// Copies @p bytes, full lines at borders of lines. The compiler keeps small values in registers.
/// Other threads see them after finish_streaming() (core/streaming.hpp).
/// @tparam step bytes of one store: half a line where values were stored in halves, which a load of
/// a line would wait for, as conversions to 16 bits do
template <std::size_t bytes, std::size_t step = 32>
inline void stream_lines(void* to, void const* from) {
  static_assert(bytes % cache_line == 0 && (step == 32 || step == cache_line));
#ifdef TESSERA_STREAMS_LINES
  auto* const out = static_cast<std::byte*>(to);
  auto const* const in = static_cast<std::byte const*>(from);
#if defined(__AVX512F__)
  if constexpr (step == cache_line) {
    for (std::size_t i = 0; i < bytes; i += step)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i),
                          _mm512_load_si512(reinterpret_cast<__m512i const*>(in + i)));
    return;
  }
#endif
  for (std::size_t i = 0; i < bytes; i += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm256_load_si256(reinterpret_cast<__m256i const*>(in + i)));
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace tessera::kernels::detail
