#include "tessera/core/streaming.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace tessera {

#if defined(__AVX__)

void stream_bytes(void* destination, void const* source, std::size_t bytes) {
  auto* const to = static_cast<std::byte*>(destination);
  auto const* const from = static_cast<std::byte const*>(source);
  std::size_t const head = std::min(bytes, (32 - reinterpret_cast<std::uintptr_t>(to) % 32) % 32);
  std::memcpy(to, from, head);
  std::size_t i = head;
  for (; i + 128 <= bytes; i += 128) {
    __m256i const a = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + i));
    __m256i const b = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + i + 32));
    __m256i const c = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + i + 64));
    __m256i const d = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + i + 96));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 32), b);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 64), c);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 96), d);
  }
  std::memcpy(to + i, from + i, bytes - i);
}
void finish_streaming() { _mm_sfence(); }

#else

void stream_bytes(void* to, void const* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void finish_streaming() {}

#endif

}  // namespace tessera
